"""What ends a run that had started."""

from __future__ import annotations


class RunFailed(Exception):
    """A part of the run died; the message is that part's own text."""


def part_failures() -> tuple[type[Exception], ...]:
    """What a dying part raises in the driver."""
    from actors.fleet.healing import GeneratorDied
    from buffer.backend.functions import BufferRefusal
    from buffer.weights.disk import WeightsError
    from learner.checkpoint.checkpoint import CheckpointError
    from learner.coordinator.claims import LearnerStarved, StalenessViolated
    from learner.coordinator.loop import NonFinite
    from learner.coordinator.rank_group import RankDied

    return (
        GeneratorDied,
        RankDied,
        LearnerStarved,
        StalenessViolated,
        NonFinite,
        CheckpointError,
        BufferRefusal,
        WeightsError,
        TimeoutError,
    )
