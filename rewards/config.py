"""How answers are graded: limits of the workers, and the settings of each grader and shaping term."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """Base of every settings model here: unknown keys are refused, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class MathConfig(Section):
    """How a mathematical answer is found in a response and compared with the reference."""

    answer: Literal["boxed_only", "boxed_or_stated"] = "boxed_or_stated"
    """``boxed_only``: only a ``\\boxed{}`` after the last ``</think>`` counts. ``boxed_or_stated``: where there
    is no box, a clear final statement ("the answer is 5") counts too."""

    deadline_seconds: float = Field(5.0, gt=0)
    """Longest time one answer may take; then its worker is killed and the verdict is ``timeout``."""


class RewardsConfig(Section):
    """Graders by ability, and the worker processes they run in."""

    workers: int = Field(2, ge=1)
    """Worker processes per pool (a generator has one pool). One grades several hundred short answers a second."""

    queue: int = Field(1024, ge=1)
    """Answers that may wait for a worker per caller; a caller with more waits until one is graded."""

    memory_bytes: int = Field(2 << 30, ge=256 << 20)
    """Address space of one grading worker. An answer that needs more gets the verdict ``error``."""

    math: MathConfig = MathConfig()
