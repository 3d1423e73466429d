"""The records that travel from generators to the learner. Arrays are NumPy, lengths are in tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from buffer.records.versions import PolicyVersion
from rewards.reward import VERDICTS, Verdict

Finish = Literal["stop", "length"]
"""Why sampling ended: the model stopped, or the response limit cut it (a *truncated* response)."""

FINISHES: tuple[Finish, ...] = get_args(Finish)


class GroupId(NamedTuple):
    """A group's name within its run: ``prompt`` as drawn for the ``draw``-th time in ``epoch``."""

    epoch: int
    prompt: int
    draw: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.prompt}.{self.draw}"

    @classmethod
    def parse(cls, text: str) -> GroupId:
        """Read ``"epoch.prompt.draw"``; raises ValueError that names the text."""
        parts = text.split(".")
        if len(parts) != 3 or not all(part.isdecimal() for part in parts):
            raise ValueError(f"group id must look like '0.17.0' (epoch.prompt.draw), got {text!r}")
        return cls(*map(int, parts))


class VersionSpan(NamedTuple):
    """Tokens ``start`` (inclusive) to ``end`` (exclusive) of a response were sampled by ``version``."""

    version: PolicyVersion
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """One sampled response.

    tokens: int32 [T], the response's token ids, the end-of-sequence token included when it was sampled.
    logprobs: float32 [T], log-probability (nats) of each token as sampled, after temperature.
    spans: contiguous, covering [0, T), versions never decreasing.
    forced: [start, end) ranges of tokens that were inserted, not sampled; they carry no gradient.
    """

    tokens: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    spans: tuple[VersionSpan, ...]
    finish: Finish
    reward: float
    verdict: Verdict
    detail: str = ""
    forced: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        length = len(self.tokens)
        if length == 0 or self.tokens.ndim != 1 or self.logprobs.shape != self.tokens.shape:
            shapes = f"{self.tokens.shape} and {self.logprobs.shape}"
            raise ValueError(f"rollout: tokens and logprobs must be equal, 1-d, non-empty; got {shapes}")
        if self.tokens.dtype != np.int32 or self.logprobs.dtype != np.float32:
            raise ValueError(f"rollout: dtypes {self.tokens.dtype}/{self.logprobs.dtype}, need int32/float32")
        edges = [0, *(span.end for span in self.spans)]
        if [span.start for span in self.spans] != edges[:-1] or edges[-1] != length:
            raise ValueError(f"rollout: version spans {self.spans} do not cover tokens 0..{length}")
        if any(a.version > b.version for a, b in zip(self.spans, self.spans[1:], strict=False)):
            raise ValueError(f"rollout: version spans {self.spans} go back in time")
        if any(not 0 <= start < end <= length for start, end in self.forced):
            raise ValueError(f"rollout: forced ranges {self.forced} lie outside tokens 0..{length}")
        if not (np.isfinite(self.reward) and np.isfinite(self.logprobs).all()):
            raise ValueError("rollout: reward and logprobs must be finite")
        if self.finish not in FINISHES or self.verdict not in VERDICTS:
            raise ValueError(f"rollout: unknown finish {self.finish!r} or verdict {self.verdict!r}")

    @property
    def oldest(self) -> PolicyVersion:
        """Version of its first token, which counts for staleness."""
        return self.spans[0].version

    @property
    def newest(self) -> PolicyVersion:
        """Version of its last token, which counts for validity in a lineage."""
        return self.spans[-1].version


@dataclass(frozen=True)
class RolloutGroup:
    """The G rollouts of one prompt, ready to train on.

    prompt_tokens: int32 [P], after the chat template. stage: index of the stage whose rules sampled it.
    """

    id: GroupId
    stage: int
    data_source: str
    prompt_tokens: NDArray[np.int32]
    rollouts: tuple[Rollout, ...]

    def __post_init__(self) -> None:
        if not self.rollouts:
            raise ValueError(f"group {self.id}: has no rollouts")
        prompt = self.prompt_tokens
        if prompt.dtype != np.int32 or prompt.ndim != 1 or len(prompt) == 0:
            raise ValueError(f"group {self.id}: prompt_tokens must be a non-empty 1-d int32 array")

    @property
    def oldest(self) -> PolicyVersion:
        """Version of the oldest token over all rollouts."""
        return min(rollout.oldest for rollout in self.rollouts)

    @property
    def newest(self) -> PolicyVersion:
        """Version of the newest token over all rollouts."""
        return max(rollout.newest for rollout in self.rollouts)

    @cached_property
    def summary(self) -> GroupSummary:
        """The group without its tokens, which is what the coordinator plans with."""
        return GroupSummary(
            id=self.id,
            stage=self.stage,
            data_source=self.data_source,
            prompt_tokens=len(self.prompt_tokens),
            lengths=tuple(len(rollout.tokens) for rollout in self.rollouts),
            forced=tuple(sum(end - start for start, end in rollout.forced) for rollout in self.rollouts),
            rewards=tuple(float(rollout.reward) for rollout in self.rollouts),
            verdicts=tuple(rollout.verdict for rollout in self.rollouts),
            finishes=tuple(rollout.finish for rollout in self.rollouts),
            logprob_sums=tuple(_sampled_sum(rollout) for rollout in self.rollouts),
            oldest=self.oldest,
            newest=self.newest,
        )


class GroupSummary(NamedTuple):
    """A group without its tokens: enough for advantages, packing and the entropy estimate.

    Every tuple has one entry per rollout. lengths and forced are in tokens (forced is part of lengths);
    logprob_sums adds the behaviour log-probabilities (nats) of the tokens that were sampled, not forced.
    """

    id: GroupId
    stage: int
    data_source: str
    prompt_tokens: int
    lengths: tuple[int, ...]
    forced: tuple[int, ...]
    rewards: tuple[float, ...]
    verdicts: tuple[Verdict, ...]
    finishes: tuple[Finish, ...]
    logprob_sums: tuple[float, ...]
    oldest: PolicyVersion
    newest: PolicyVersion

    @property
    def pass_rate(self) -> float:
        """Share of rollouts graded correct, errors left out; 0.0 if all are errors."""
        graded = len(self.verdicts) - self.verdicts.count("error")
        return self.verdicts.count("correct") / graded if graded else 0.0


def _sampled_sum(rollout: Rollout) -> float:
    total = float(rollout.logprobs.sum(dtype=np.float64))
    return total - sum(float(rollout.logprobs[a:b].sum(dtype=np.float64)) for a, b in rollout.forced)
