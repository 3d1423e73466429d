"""Policy versions, lineages and staleness. Pure: no clock, no socket, no thread.

A *policy version* names one set of weights: the lineage (one learner's life) that made them and the step that
trains them. Step k trains version k and makes version k + 1. A learner that restores a checkpoint starts a
new lineage, so two different policies never share a name.
"""

from __future__ import annotations

from typing import NamedTuple


class PolicyVersion(NamedTuple):
    """One set of weights, ordered by lineage, then step; written ``lineage.step``."""

    lineage: int
    step: int

    def __str__(self) -> str:
        return f"{self.lineage}.{self.step}"

    @classmethod
    def parse(cls, text: str) -> PolicyVersion:
        """Read ``"lineage.step"``; raises ValueError that names the text."""
        head, dot, tail = text.partition(".")
        if not (dot and head.isdecimal() and tail.isdecimal()):
            raise ValueError(f"policy version must look like '3.120' (lineage.step), got {text!r}")
        return cls(int(head), int(tail))


class Lineage(NamedTuple):
    """One learner's life between two restores: its parent and the step at which it was restored.

    The first lineage of a run has ``parent`` 0 and ``fork_step`` 0.
    """

    number: int
    parent: int
    fork_step: int


def staleness(step: int, oldest: PolicyVersion) -> int:
    """Return the learner step minus the step of the oldest token's weights; 0 is strictly on-policy."""
    return step - oldest.step
