"""LearnerState: the coordinator's own state, from step to step and in checkpoints. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from buffer.records.versions import PolicyVersion
from learner.recipe.entropy import AdaptiveEntropy


@dataclass(frozen=True, slots=True)
class LearnerState:
    """State before a step.

    version: the weights that the step trains. skipped: steps of the run without an update. skipped_in_a_row:
    those of them since the last update.
    """

    version: PolicyVersion = field(default_factory=lambda: PolicyVersion(0, 0))
    entropy: AdaptiveEntropy = field(default_factory=AdaptiveEntropy)
    skipped: int = 0
    skipped_in_a_row: int = 0

    def after(self, entropy: AdaptiveEntropy, applied: bool) -> LearnerState:
        """Return the state after this step."""
        return LearnerState(
            version=PolicyVersion(self.version.lineage, self.version.step + 1),
            entropy=entropy,
            skipped=self.skipped + (not applied),
            skipped_in_a_row=0 if applied else self.skipped_in_a_row + 1,
        )

    def in_lineage(self, number: int) -> LearnerState:
        """Return the same state in another lineage."""
        return replace(self, version=PolicyVersion(number, self.version.step))

    def as_dict(self) -> dict[str, Any]:
        """Return the state, JSON-able."""
        return asdict(self) | {"version": str(self.version)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> LearnerState:
        """Read what ``as_dict`` returned; raises KeyError or ValueError for anything else."""
        return cls(
            version=PolicyVersion.parse(state["version"]),
            entropy=AdaptiveEntropy(**state["entropy"]),
            skipped=int(state["skipped"]),
            skipped_in_a_row=int(state["skipped_in_a_row"]),
        )
