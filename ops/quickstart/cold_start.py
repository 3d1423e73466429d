"""Supervised cold start of the tiny model, ended by what it can do, not by a number of steps.

Policy gradient needs a start that is right sometimes and sure of its format; a fixed number of steps gives
1% to 32% by the seed. So sampled accuracy is looked at every few steps, and an overshoot goes back.
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


class Look(NamedTuple):
    """accuracy: share of sampled responses that are right. entropy: mean nats per sampled token."""

    accuracy: float
    entropy: float


class ColdStartFailed(RuntimeError):
    """No seed gave a start to learn from; the message says what each came to."""


def cold_start(
    settings: ColdStart, tokenizer: PreTrainedTokenizerBase, problems: Sequence[Addition], progress: Progress
) -> Qwen2ForCausalLM:
    """Train a new model on worked solutions until a look at it is good; raises ColdStartFailed."""
    tried = []
    with _one_thread():
        for seed in range(settings.seed, settings.seed + settings.seeds):
            attempt = _Attempt(settings, tokenizer, problems, seed)
            look = attempt.run(progress)
            if look is None:
                return attempt.model
            tried.append(f"seed {seed}: accuracy {look.accuracy:.2f}, entropy {look.entropy:.2f}")
    raise ColdStartFailed("the tiny model found no start to learn from: " + "; ".join(tried))


@contextmanager
def _one_thread() -> Iterator[None]:
    """So small a model computes no faster on several threads, and far slower where they are disturbed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Attempt:
    """One seed's model, its optimizer, and the last state that did not overshoot."""

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

    def run(self, progress: Progress) -> Look | None:
        """Train until a look is good (None), or until steps or returns are used up (the last look)."""
        kept, returns, stride = self._state(), self.settings.returns, self.settings.look_every
        look = Look(0.0, float("inf"))
        while self.steps < self.settings.max_steps:
            loss = sum(self._step() for _ in range(stride)) / stride
            if loss > self.settings.look_loss:
                continue  # a look costs as much as many steps
            look = sample_accuracy(
                self.model, self.tokenizer, self._draw(self.settings.samples), self.sampler
            )
            progress(
                f"cold start, step {self.steps}: accuracy {look.accuracy:.2f}, entropy {look.entropy:.2f}"
            )
            if look.accuracy <= self.settings.highest:
                if look.accuracy >= self.settings.lowest and look.entropy <= self.settings.entropy:
                    return None
                kept = self._state()
            elif returns > 0:
                returns -= 1
                stride = max(1, stride // 2)  # it jumped over: smaller steps, on other problems
                self._restore(kept)
            else:
                break
        return look

    def _step(self) -> float:
        """One update; returns its loss, nats per token."""
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
    """4 layers of width 128: 0.8 million parameters."""
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
def sample_accuracy(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Addition],
    generator: torch.Generator,
    limit: int = 40,
) -> Look:
    """One response a problem at temperature 1, at most ``limit`` tokens each."""
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
    return Look(right / len(problems), nats / count)


def prompt_tokens(tokenizer: PreTrainedTokenizerBase, problems: Sequence[Addition]) -> list[list[int]]:
    """The prompts as a generator renders them: through the chat template."""
    chats = [[{"role": "user", "content": problem.question}] for problem in problems]
    tokens: list[list[int]] = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, return_dict=False
    )
    return tokens


def _examples(
    tokenizer: PreTrainedTokenizerBase, problems: Sequence[Addition]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels, int64 [B, T]; the loss is on the solution and its end alone."""
    prompts = torch.tensor(prompt_tokens(tokenizer, problems))
    texts = [problem.solution + tokenizer.eos_token for problem in problems]
    solutions = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
    labels = solutions.input_ids.masked_fill(solutions.attention_mask == 0, -100)
    return torch.cat([prompts, solutions.input_ids], 1), torch.cat(
        [torch.full_like(prompts, -100), labels], 1
    )
