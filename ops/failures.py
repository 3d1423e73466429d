"""What ends a run that had started."""

from __future__ import annotations


class RunFailed(Exception):
    """A part of the run died; the message is that part's own text."""


def part_failures() -> tuple[type[Exception], ...]:
    """What a dying part raises in the driver."""
    from actors.healing import GeneratorDied
    from buffer.library import BufferRefusal
    from buffer.weights import WeightsError
    from learner.batches import LearnerStarved, StalenessViolated
    from learner.checkpoint import CheckpointError
    from learner.loop import NonFinite
    from learner.ranks import RankDied

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
