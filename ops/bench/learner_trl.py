"""One GRPO update by TRL on the rollouts that the learner gets in ``ops.bench.learner``."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from buffer.records.rollout import RolloutGroup

MICRO_BATCH = 4


class _Clock(TrainerCallback):  # type: ignore[misc]
    """CPU seconds of every optimizer step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._start = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._start = time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.process_time() - self._start)


class _Injected(GRPOTrainer):  # type: ignore[misc]
    """TRL's own loss, backward and step on given rollouts, without generation and scoring."""

    rollouts: dict[str, Any]

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        del inputs
        return dict(self.rollouts)


def trl_seconds(model: Path, groups: Sequence[RolloutGroup], rounds: int) -> float:
    """Return the CPU seconds of TRL's fastest update of ``rounds``: float32, no checkpointing, one thread."""
    responses = sum(len(group.rollouts) for group in groups)
    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=MICRO_BATCH,
            gradient_accumulation_steps=responses // MICRO_BATCH,
            num_generations=len(groups[0].rollouts),
            max_steps=rounds,
            learning_rate=1e-6,
            beta=0.0,
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        clock = _Clock()
        trainer = _Injected(
            model=str(model),
            args=settings,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            train_dataset=Dataset.from_list([{"prompt": "a"}] * responses),
            processing_class=_tokenizer(),
            callbacks=[clock],
        )
        trainer.rollouts = _padded(groups)
        trainer.train()
    return min(clock.seconds)


def _padded(groups: Sequence[RolloutGroup]) -> dict[str, Any]:
    """Return what TRL's generation returns: prompts padded on the left, completions on the right."""
    from torch.nn.utils.rnn import pad_sequence

    rollouts = [rollout for group in groups for rollout in group.rollouts]
    prompts = torch.stack(
        [torch.from_numpy(group.prompt_tokens).long() for group in groups for _ in group.rollouts]
    )
    completions = [torch.from_numpy(rollout.tokens).long() for rollout in rollouts]
    return {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": pad_sequence(completions, batch_first=True),
        "completion_mask": pad_sequence([torch.ones_like(ids) for ids in completions], batch_first=True),
        "advantages": torch.tensor([2 * rollout.reward - 1 for rollout in rollouts]),
        "num_items_in_batch": torch.tensor(sum(map(len, completions))),
    }


def _tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel({"a": 0, "<pad>": 1, "<eos>": 2}, unk_token="a"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
