"""Which prompts are drawn, and how often each is sampled, by their pass rates. Pure: no clock, no socket,
no thread."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import msgpack

from buffer.config import DifficultyConfig
from buffer.records.rollout import GroupSummary

PRIOR_STRENGTH = 4.0
"""Number of samples that an initial pass rate from the dataset counts for."""


class PromptHistory(NamedTuple):
    """One prompt's record.

    groups, samples, successes: totals. last: pass rate of its last group. failures: consecutive groups
    without one right answer. right, wrong: counts of a Beta posterior, in which older policies weigh less.
    step: that of the newest policy that sampled it.
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
        """Return the record of a prompt that was not sampled yet; ``pass_rate`` as in the dataset."""
        if pass_rate is None:
            return cls()
        return cls(right=PRIOR_STRENGTH * pass_rate, wrong=PRIOR_STRENGTH * (1 - pass_rate))

    @property
    def pass_rate(self) -> float:
        """Posterior mean under a uniform prior, Beta(1, 1)."""
        return (self.right + 1) / (self.right + self.wrong + 2)

    def pack(self) -> bytes:
        """Return the record as msgpack, for Redis."""
        packed: bytes = msgpack.packb(self)
        return packed

    @classmethod
    def unpack(cls, data: bytes) -> PromptHistory:
        """Read what ``pack`` wrote; raises ValueError."""
        row = msgpack.unpackb(data, max_array_len=16)
        if not isinstance(row, list) or len(row) != 8 or not all(isinstance(x, int | float) for x in row):
            raise ValueError("prompt history: unreadable")
        return cls(*row)


class PromptStatus(NamedTuple):
    """Whether a prompt is drawn again: ``active``, ``resting`` until ``epoch``, or ``retired``."""

    name: str
    epoch: int = 0


ACTIVE, RETIRED = PromptStatus("active"), PromptStatus("retired")


def observe(history: PromptHistory, group: GroupSummary, memory: float) -> PromptHistory:
    """Return the history after one more group; a group with nothing but grading errors changes nothing."""
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
    """Return whether initial_low < pass rate < initial_high; an unknown pass rate passes."""
    return pass_rate is None or rules.initial_low < pass_rate < rules.initial_high


def next_status(history: PromptHistory, rules: DifficultyConfig, epoch: int) -> PromptStatus:
    """Retire mastered prompts; rest those that keep failing, longer each time but never for good."""
    if rules.retire_at is not None and history.last >= rules.retire_at:
        return RETIRED
    if rules.rest_after is not None and history.failures >= rules.rest_after:
        rest = min(rules.rest_longest, 2 ** (history.failures - rules.rest_after))
        return PromptStatus("resting", epoch + 1 + rest)
    return ACTIVE


def drawn_in_stage(history: PromptHistory | None, pass_rate: float | None, rules: DifficultyConfig) -> bool:
    """Return whether a stage that begins draws a prompt.

    Once the prompt was sampled, its record decides; before, the dataset's ``pass_rate``. Failures under the
    old limits are forgiven; mastered prompts stay retired.
    """
    if history is None:
        return worth_starting(pass_rate, rules)
    mastered = rules.retire_at is not None and history.last >= rules.retire_at
    return not mastered and worth_starting(history.pass_rate, rules)


def sampling_value(pass_rate: float) -> float:
    """Return how much more samples of a prompt teach: most at about 3 in 10 right, nothing at 0 or 1.

    The deviation of a binary reward, sqrt(p (1 - p)), tilted towards hard prompts by (3 - 2p).
    """
    return float((max(0.0, pass_rate * (1 - pass_rate))) ** 0.5 * (3 - 2 * pass_rate))


@dataclass(frozen=True, slots=True)
class SamplingBudget:
    """Gives promising hard prompts more samples and easy ones fewer, within bounds, at the same total.

    ``low``, ``high``: bounds, as multiples of the group size. ``mean``: running mean of the sampling value of
    the prompts seen. ``overspend``: samples allocated beyond the group size so far, which the next prompts
    repay; it stays within one group's span, and so does the total.
    """

    low: float
    high: float
    mean: float = sampling_value(0.5)
    overspend: float = 0.0

    def allocate(self, pass_rate: float, group_size: int) -> tuple[int, SamplingBudget]:
        """Return the samples for this prompt and the budget that is left.

        At least 2 samples, so that a group can have a gradient.
        """
        least, most = max(2, round(group_size * self.low)), max(2, round(group_size * self.high))
        if least == most:
            return group_size, self
        value = sampling_value(pass_rate)
        wanted = group_size * value / self.mean - self.overspend
        samples = min(most, max(least, round(wanted)))
        mean, overspend = self.mean + 0.02 * (value - self.mean), self.overspend + samples - group_size
        return samples, replace(self, mean=mean, overspend=overspend)
