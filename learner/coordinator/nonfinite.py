"""Steps whose gradient is not finite: their batches are kept, and too many in a row end the run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from buffer.records.codec import encode_group
from buffer.records.rollout import RolloutGroup
from learner.coordinator.state import LearnerState


class NonFinite(Exception):
    """Too many steps in a row had a gradient that is not finite; says where their batches are."""


def keep_batch(folder: Path, groups: Iterable[RolloutGroup]) -> None:
    """Write the groups to ``folder`` as they came from the buffer, one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for group in groups:
        (folder / f"{group.id}.group").write_bytes(encode_group(group))


def stop_if_too_many(state: LearnerState, limit: int, folder: Path) -> None:
    """Raises NonFinite after ``limit`` skipped steps in a row."""
    if state.skipped_in_a_row >= limit:
        raise NonFinite(
            f"{state.skipped_in_a_row} steps in a row up to {state.version.step - 1} had a gradient that is "
            f"not finite; their batches are in {folder}"
        )
