"""What a prompt's pass rate says about it. Pure rules; their parameters are in the config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgpack

from buffer.config import DifficultyConfig
from buffer.records.rollout import GroupSummary

PRIOR_STRENGTH = 4.0
"""How many samples an initial pass rate from the dataset counts for."""


class PromptHistory(NamedTuple):
    """What is known of one prompt.

    groups, samples, successes: totals. last: pass rate of its last group. failures: groups without one right
    answer in a row. right, wrong: a Beta posterior's counts, in which older policies weigh less. step: of the
    policy that was sampled last.
    """

    groups: int = 0
    samples: int = 0
    successes: int = 0
    last: float = -1.0
    failures: int = 0
    right: float = 0.0
    wrong: float = 0.0
    step: int = 0

    @classmethod
    def initial(cls, pass_rate: float | None) -> PromptHistory:
        """A prompt not sampled yet; ``pass_rate`` as the dataset knows it."""
        if pass_rate is None:
            return cls()
        return cls(right=PRIOR_STRENGTH * pass_rate, wrong=PRIOR_STRENGTH * (1 - pass_rate))

    @property
    def pass_rate(self) -> float:
        """Posterior mean under a uniform prior, Beta(1, 1)."""
        return (self.right + 1) / (self.right + self.wrong + 2)

    def pack(self) -> bytes:
        """As msgpack, for Redis."""
        packed: bytes = msgpack.packb(self)
        return packed

    @classmethod
    def unpack(cls, data: bytes) -> PromptHistory:
        """Read what ``pack`` wrote; raises ValueError."""
        row = msgpack.unpackb(data, max_array_len=16)
        if not isinstance(row, list) or len(row) != 8 or not all(isinstance(x, int | float) for x in row):
            raise ValueError("prompt history: unreadable")
        return cls(*row)


class Standing(NamedTuple):
    """Whether a prompt is drawn again: ``active``, ``resting`` until ``epoch``, or ``retired``."""

    name: str
    epoch: int = 0


ACTIVE, RETIRED = Standing("active"), Standing("retired")


def observe(history: PromptHistory, group: GroupSummary, memory: float) -> PromptHistory:
    """The history after one more group; a group of grading errors only says nothing."""
    graded = len(group.verdicts) - group.verdicts.count("error")
    if not graded:
        return history
    right = group.verdicts.count("correct")
    kept = memory ** max(0, group.oldest.step - history.step)
    return PromptHistory(
        groups=history.groups + 1,
        samples=history.samples + graded,
        successes=history.successes + right,
        last=right / graded,
        failures=0 if right else history.failures + 1,
        right=history.right * kept + right,
        wrong=history.wrong * kept + graded - right,
        step=max(history.step, group.oldest.step),
    )


def worth_starting(pass_rate: float | None, rules: DifficultyConfig) -> bool:
    """Initial filter: keep initial_low < p < initial_high; a prompt of unknown pass rate is kept."""
    return pass_rate is None or rules.initial_low < pass_rate < rules.initial_high


def standing(history: PromptHistory, rules: DifficultyConfig, epoch: int) -> Standing:
    """Epoch retirement of mastered prompts; a growing rest, never for ever, for those that keep failing."""
    if rules.retire_at is not None and history.last >= rules.retire_at:
        return RETIRED
    if rules.rest_after is not None and history.failures >= rules.rest_after:
        pause = min(rules.rest_longest, 2 ** (history.failures - rules.rest_after))
        return Standing("resting", epoch + 1 + pause)
    return ACTIVE


def drawn_in_stage(history: PromptHistory | None, pass_rate: float | None, rules: DifficultyConfig) -> bool:
    """Whether a stage that begins draws a prompt.

    Its own record decides once it was sampled, the dataset's ``pass_rate`` before. Failures under the old
    limits are forgiven; mastered prompts stay retired.
    """
    if history is None:
        return worth_starting(pass_rate, rules)
    mastered = rules.retire_at is not None and history.last >= rules.retire_at
    return not mastered and worth_starting(history.pass_rate, rules)


def promise(pass_rate: float) -> float:
    """How much a prompt gains from more samples: highest at about 3 in 10 right, none at 0 or 1.

    The deviation of a binary reward, sqrt(p (1 - p)), tilted towards hard prompts by (3 - 2p).
    """
    return float((max(0.0, pass_rate * (1 - pass_rate))) ** 0.5 * (3 - 2 * pass_rate))


@dataclass(frozen=True, slots=True)
class SamplingBudget:
    """Gives promising hard prompts more samples and easy ones fewer, within bounds, at the same total.

    ``mean``: running mean of the promise of the prompts seen. ``debt``: samples given beyond the group size
    so far, which the next prompts repay; it stays within one group's span, so the total does.
    """

    low: float
    high: float
    mean: float = promise(0.5)
    debt: float = 0.0

    def give(self, pass_rate: float, group_size: int) -> tuple[int, SamplingBudget]:
        """Samples for this prompt, and the budget that is left. At least 2, so that a group can have a
        gradient."""
        least, most = max(2, round(group_size * self.low)), max(2, round(group_size * self.high))
        if least == most:
            return group_size, self
        worth = promise(pass_rate)
        wanted = group_size * worth / self.mean - self.debt
        given = min(most, max(least, round(wanted)))
        debt = self.debt + given - group_size
        return given, replace(self, mean=self.mean + 0.02 * (worth - self.mean), debt=debt)


def mean_pass_rate(histories: Sequence[PromptHistory]) -> float:
    """Mean of the posterior pass rates; 0.0 of none."""
    return sum(history.pass_rate for history in histories) / len(histories) if histories else 0.0
