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
    """``boxed_only``: only a ``\\boxed{}`` after the last ``</think>`` counts. ``boxed_or_stated``: where there is
    no box, a clear final statement ("the answer is 5") counts too."""

    deadline_seconds: float = Field(5.0, gt=0)
    """Longest time one answer may take; then its worker is killed and the verdict is ``timeout``."""


class CodeConfig(Section):
    """How programs are run and judged. Limits are per test unless they say otherwise."""

    wall_seconds: float = Field(6.0, gt=0)
    """Longest time one test may take; then it failed (the limit of the published Skywork and LiveCodeBench
    harnesses)."""

    cpu_seconds: int = Field(6, ge=1)
    """CPU time of one process of a test."""

    total_seconds: float = Field(60.0, gt=0)
    """Longest time all tests of one response may take together; then the rest counts as failed."""

    memory_bytes: int = Field(1 << 30, ge=64 << 20)
    """Memory of all processes of a test together: by a memory cgroup where one can be made, else by watching."""

    address_bytes: int = Field(4 << 30, ge=256 << 20)
    """Address space of one process (RLIMIT_AS); a thread stack of 256 MiB must fit."""

    processes: int = Field(64, ge=2)
    """Processes and threads that may exist at once."""

    scratch_bytes: int = Field(64 << 20, ge=1 << 20)
    """Size of the private /tmp, and again of /dev/shm; both live in memory and are emptied after each test."""

    output_bytes: int = Field(16 << 20, ge=1 << 10)
    """Longest output, and largest file a program may write."""

    fractional: bool = False
    """Reward the share of tests passed (all are run) instead of 1 for all and 0 otherwise."""

    float_tolerance: float = Field(1e-6, ge=0)
    """Relative tolerance, and absolute for values from 0.001, where the expected value is a float."""

    python: str = "auto"
    """Interpreter inside the sandbox. ``auto``: the first of /usr/bin/python3, /usr/local/bin/python3."""

    unsafe: bool = False
    """Run programs even where the sandbox cannot be built or fails its escape probe. They then have the rights of
    this process."""


class RewardsConfig(Section):
    """Graders by ability, and the worker processes they run in."""

    workers: int = Field(2, ge=1)
    """Worker processes per pool (a generator has one pool)."""

    queue: int = Field(1024, ge=1)
    """Answers that may wait for a worker per caller; a caller with more waits until one is graded."""

    memory_bytes: int = Field(2 << 30, ge=256 << 20)
    """Address space of one grading worker. An answer that needs more gets the verdict ``error``."""

    math: MathConfig = MathConfig()

    code: CodeConfig = CodeConfig()
