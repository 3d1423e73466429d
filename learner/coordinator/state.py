"""LearnerState: what the coordinator itself carries from step to step and through a checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from buffer.records.versions import PolicyVersion
from learner.recipe.entropy import AdaptiveEntropy


@dataclass(frozen=True, slots=True)
class LearnerState:
    """version: the weights the next step trains. skipped: steps without an update, over the whole run.

    skipped_in_a_row: of these, how many came last, without a good step after them.
    """

    version: PolicyVersion = field(default_factory=lambda: PolicyVersion(0, 0))
    entropy: AdaptiveEntropy = field(default_factory=AdaptiveEntropy)
    skipped: int = 0
    skipped_in_a_row: int = 0

    def after(self, entropy: AdaptiveEntropy, applied: bool) -> LearnerState:
        """The state once this step's weights are published."""
        return LearnerState(
            version=PolicyVersion(self.version.lineage, self.version.step + 1),
            entropy=entropy,
            skipped=self.skipped + (not applied),
            skipped_in_a_row=0 if applied else self.skipped_in_a_row + 1,
        )

    def in_lineage(self, number: int) -> LearnerState:
        """The same state, continued by another lineage."""
        return replace(self, version=PolicyVersion(number, self.version.step))

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self) | {"version": str(self.version)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> LearnerState:
        """What ``as_dict`` made; raises KeyError or ValueError for anything else."""
        return cls(
            version=PolicyVersion.parse(state["version"]),
            entropy=AdaptiveEntropy(**state["entropy"]),
            skipped=int(state["skipped"]),
            skipped_in_a_row=int(state["skipped_in_a_row"]),
        )
