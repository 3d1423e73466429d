"""One update of a model of SmolLM2-135M's shape: by the learner, and by a minimal training loop."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from buffer.records.rollout import GroupId, Rollout, RolloutGroup
from learner.compute.collate import collate
from learner.compute.rank import Rank
from learner.compute.resolve import resolve_layout
from learner.config import LearnerConfig
from learner.rank_spec import RankSpec
from learner.recipe.advantage import batch_advantages
from learner.recipe.plan import StepPlan, plan_step
from ops.bench.buffer import example_rollout
from ops.bench.timing import Work

VOCABULARY = 49_152
PROMPT, GROUPS, GROUP_SIZE = 48, 3, 4
BUDGET = 1024


def write_model(folder: Path) -> Path:
    """Write a model of SmolLM2-135M's shape; its random weights do not change the time."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
        max_position_embeddings=2048,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def ragged_groups() -> list[RolloutGroup]:
    """Return rollouts of very different lengths, as for word problems."""
    rng = np.random.default_rng(0)
    return [
        RolloutGroup(
            GroupId(0, index, 0),
            0,
            "bench",
            rng.integers(0, VOCABULARY, PROMPT).astype(np.int32),
            tuple(_rollout(rng, member) for member in range(GROUP_SIZE)),
        )
        for index in range(GROUPS)
    ]


def _rollout(rng: np.random.Generator, index: int) -> Rollout:
    length = int(np.clip(rng.lognormal(4.6, 0.6), 16, 400))
    tokens = rng.integers(0, VOCABULARY, length).astype(np.int32)
    return example_rollout(index, tokens, np.full(length, -10.8, dtype=np.float32))


def unpadded_tokens(groups: list[RolloutGroup]) -> int:
    """Return the tokens of all responses, each with its prompt."""
    return sum(len(group.prompt_tokens) + len(each.tokens) for group in groups for each in group.rollouts)


def magic_update(model: Path) -> Work:
    """Return the learner's own update, with the entropy term, by a rank as a run starts it."""
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    groups, config = ragged_groups(), LearnerConfig(token_budget=BUDGET)

    class Source:
        def fetch(self, wanted: Any) -> Any:
            return [groups[index] for index in wanted]

    rank = Rank(RankSpec(model, config, Source, lambda: None), 0, 1)  # type: ignore[arg-type, return-value]
    rank.join("127.0.0.1", rank.listen("127.0.0.1"))

    def update() -> None:
        plan = _plan(groups, config, rank.layout())
        rank.fetch(plan, range(len(groups)))
        rank.update(plan)

    return update


def bare_update(model: Path, layout: str) -> Work:
    """Return forward, cross entropy of the response tokens, backward and AdamW in plain PyTorch."""
    groups, config = ragged_groups(), LearnerConfig(token_budget=BUDGET, layout=layout)  # type: ignore[arg-type]
    plan = _plan(groups, config, resolve_layout(config, "sdpa"))
    batches = [collate(micro, dict(enumerate(groups)), 0) for micro in plan.mini_batches[0].shards[0]]
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-6, fused=True)

    def update() -> None:
        for batch in batches:
            hidden = network.model(input_ids=batch.input_ids, position_ids=batch.positions, use_cache=False)
            logits = network.lm_head(hidden.last_hidden_state.flatten(0, 1)[batch.select])
            loss = torch.nn.functional.cross_entropy(logits, batch.tokens.targets, reduction="sum")
            (loss / plan.tokens).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return update


def _plan(groups: list[RolloutGroup], config: LearnerConfig, layout: Any) -> StepPlan:
    summaries = [group.summary for group in groups]
    return plan_step(
        summaries,
        batch_advantages(summaries, config),
        config,
        step=0,
        alpha=0.001,
        temperature=1.0,
        layout=layout,
    )
