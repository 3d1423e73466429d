"""Supervised cold start of the tiny model, ended by its accuracy, not by a number of steps.

Policy gradient needs a start that is sometimes right and sure of its format; a fixed number of steps gives
1% to 32% by the seed. So the model is evaluated every few steps, and an overshoot is undone.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM

from ops.quickstart.problems import Addition
from ops.quickstart.settings import ColdStart

Progress = Callable[[str], None]


class Quality(NamedTuple):
    """accuracy: share of sampled responses that are right. entropy: mean nats per sampled token."""

    accuracy: float
    entropy: float


class ColdStartFailed(RuntimeError):
    """No seed gave a start to learn from; the message names the accuracy and entropy of each."""


def cold_start(
    settings: ColdStart, tokenizer: PreTrainedTokenizerBase, problems: Sequence[Addition], progress: Progress
) -> Qwen2ForCausalLM:
    """Train a new model on worked solutions until its quality is in the range. Raises ColdStartFailed."""
    tried = []
    with _one_thread():
        for seed in range(settings.seed, settings.seed + settings.seeds):
            attempt = _Attempt(settings, tokenizer, problems, seed)
            reached = attempt.run(progress)
            if reached is None:
                return attempt.model
            tried.append(f"seed {seed}: accuracy {reached.accuracy:.2f}, entropy {reached.entropy:.2f}")
    raise ColdStartFailed("the tiny model found no start to learn from: " + "; ".join(tried))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread: so small a model gains nothing from more, and loses where cores are shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Attempt:
    """Model and optimizer of one seed."""

    def __init__(
        self,
        settings: ColdStart,
        tokenizer: PreTrainedTokenizerBase,
        problems: Sequence[Addition],
        seed: int,
    ) -> None:
        self.settings, self.tokenizer, self.problems = settings, tokenizer, problems
        self.random = random.Random(seed)
        self.sampler = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = Qwen2ForCausalLM(model_config(tokenizer))
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), settings.learning_rate, settings.betas, weight_decay=0.0
        )
        self.steps = 0

    def run(self, progress: Progress) -> Quality | None:
        """Train until the quality is in the range; return None then, the last quality if it never was."""
        kept, returns, stride = self._state(), self.settings.returns, self.settings.evaluate_every
        now = Quality(0.0, float("inf"))
        while self.steps < self.settings.max_steps:
            loss = sum(self._step() for _ in range(stride)) / stride
            if loss > self.settings.evaluate_below:
                continue  # an evaluation costs as much as many steps
            now = sample_quality(self.model, self.tokenizer, self._draw(self.settings.samples), self.sampler)
            progress(f"cold start, step {self.steps}: accuracy {now.accuracy:.2f}, entropy {now.entropy:.2f}")
            if now.accuracy <= self.settings.highest:
                if now.accuracy >= self.settings.lowest and now.entropy <= self.settings.entropy:
                    return None
                kept = self._state()
            elif returns > 0:
                returns -= 1
                stride = max(1, stride // 2)  # overshot: fewer steps to the next evaluation, other problems
                self._restore(kept)
            else:
                break
        return now

    def _step(self) -> float:
        """Make one update; return its loss in nats per token."""
        self.steps += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * min(1.0, self.steps / self.settings.warmup)
        tokens, labels = _examples(self.tokenizer, self._draw(self.settings.batch))
        loss = self.model(input_ids=tokens, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss.detach())

    def _draw(self, count: int) -> list[Addition]:
        return self.random.sample(self.problems, count)

    def _state(self) -> tuple[int, Any, Any]:
        return self.steps, copy.deepcopy(self.model.state_dict()), copy.deepcopy(self.optimizer.state_dict())

    def _restore(self, state: tuple[int, Any, Any]) -> None:
        self.steps, weights, moments = state
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict(copy.deepcopy(moments))


def model_config(tokenizer: PreTrainedTokenizerBase) -> Qwen2Config:
    """Return a Qwen2 of 4 layers and width 128: 0.8 million parameters."""
    return Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


@torch.no_grad()
def sample_quality(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Addition],
    generator: torch.Generator,
    limit: int = 40,
) -> Quality:
    """Sample one response for each problem at temperature 1, at most ``limit`` tokens long."""
    last = torch.tensor(prompt_tokens(tokenizer, problems))  # equally long: nothing to pad
    open_, cache, responses = torch.ones(len(problems), dtype=torch.bool), None, list[torch.Tensor]()
    nats, count = 0.0, 0
    while open_.any() and len(responses) < limit:
        output = model(input_ids=last, past_key_values=cache, use_cache=True)
        cache, logs = output.past_key_values, output.logits[:, -1].log_softmax(-1)
        nats += float(-(logs.exp() * logs).sum(-1)[open_].sum())
        count += int(open_.sum())
        last = torch.multinomial(logs.exp(), 1, generator=generator)
        last[~open_] = tokenizer.pad_token_id
        open_ &= last[:, 0] != tokenizer.eos_token_id
        responses.append(last)
    texts = tokenizer.batch_decode(torch.cat(responses, 1), skip_special_tokens=True)
    right = sum(problem.solved_by(text) for problem, text in zip(problems, texts, strict=True))
    return Quality(right / len(problems), nats / count)


def prompt_tokens(tokenizer: PreTrainedTokenizerBase, problems: Sequence[Addition]) -> list[list[int]]:
    """Return the prompts as a generator renders them: through the chat template."""
    chats = [[{"role": "user", "content": problem.question}] for problem in problems]
    tokens: list[list[int]] = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, return_dict=False
    )
    return tokens


def _examples(
    tokenizer: PreTrainedTokenizerBase, problems: Sequence[Addition]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and labels, int64 [B, T]; only the solution and its end have labels."""
    prompts = torch.tensor(prompt_tokens(tokenizer, problems))
    texts = [problem.solution + tokenizer.eos_token for problem in problems]
    solutions = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
    labels = solutions.input_ids.masked_fill(solutions.attention_mask == 0, -100)
    return torch.cat([prompts, solutions.input_ids], 1), torch.cat(
        [torch.full_like(prompts, -100), labels], 1
    )
