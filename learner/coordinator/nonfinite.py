"""Steps whose gradient is not finite: dump their batches, end the run after too many in a row."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from buffer.records.codec import encode_group
from buffer.records.rollout import RolloutGroup
from learner.coordinator.state import LearnerState


class NonFinite(Exception):
    """Too many steps in a row had a gradient that is not finite; the message names the dumped batches."""


def dump_groups(folder: Path, groups: Iterable[RolloutGroup]) -> None:
    """Write the groups to ``folder``, encoded as in the buffer, one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for group in groups:
        (folder / f"{group.id}.group").write_bytes(encode_group(group))


def stop_if_too_many(state: LearnerState, limit: int, folder: Path) -> None:
    """Raise NonFinite after ``limit`` skipped steps in a row."""
    if state.skipped_in_a_row >= limit:
        raise NonFinite(
            f"{state.skipped_in_a_row} steps in a row up to {state.version.step - 1} had a gradient that is "
            f"not finite; their batches are in {folder}"
        )
