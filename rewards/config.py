"""How answers are graded: limits of the workers, and the settings of each grader and shaping term."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rewards.settings import Settings


class MathConfig(Settings):
    """How a mathematical answer is found in a response and compared with the reference."""

    answer: Literal["boxed_only", "boxed_or_stated"] = "boxed_or_stated"
    """``boxed_only``: only a ``\\boxed{}`` after the last ``</think>`` counts. ``boxed_or_stated``: where
    there is no box, a clear final statement ("the answer is 5") counts too."""

    deadline_seconds: float = Field(5.0, gt=0)
    """Longest time one answer may take; then its worker is killed and the verdict is ``timeout``."""


class CodeConfig(Settings):
    """How programs are run and judged. Limits are per test unless they say otherwise."""

    wall_seconds: float = Field(6.0, gt=0)
    """Longest time one test may take; then it failed (the limit of the published Skywork and LiveCodeBench
    harnesses)."""

    cpu_seconds: int = Field(6, ge=1)
    """CPU time of one process of a test."""

    total_seconds: float = Field(60.0, gt=0)
    """Longest time all tests of one response may take together; then the rest counts as failed."""

    memory_bytes: int = Field(1 << 30, ge=64 << 20)
    """Memory of all processes of a test together: by a memory cgroup where one can be made, else by
    watching."""

    address_bytes: int = Field(4 << 30, ge=256 << 20)
    """Address space of one process (RLIMIT_AS); a thread stack of 256 MiB must fit."""

    processes: int = Field(128, ge=2)
    """Processes and threads that may exist at once."""

    scratch_bytes: int = Field(64 << 20, ge=1 << 20)
    """Size of the private /tmp, and again of /dev/shm; both live in memory and are emptied after each
    test."""

    output_bytes: int = Field(16 << 20, ge=1 << 10)
    """Longest output, and largest file a program may write."""

    fractional: bool = False
    """Reward the share of tests passed (all are run) instead of 1 for all and 0 otherwise."""

    float_tolerance: float = Field(1e-6, ge=0)
    """Relative tolerance, and absolute for values from 0.001, where the expected value is a float."""

    python: str = "auto"
    """Interpreter inside the sandbox. ``auto``: /usr/bin/python3 or /usr/local/bin/python3, preferably of
    this environment's version, whose numpy and sortedcontainers programs can then import."""

    unsafe: bool = False
    """Run programs even where the sandbox cannot be built or fails its escape probe. They then have the
    rights of this process."""


class LengthTerm(Settings):
    """Length-aware accuracy: replaces the grader's value by one that also depends on length, as
    Phi-4-reasoning-plus does (Abdin et al. 2025, arXiv:2504.21318, section 4.1; its lengths are the
    defaults). Short correct answers get the most, then long correct ones; long wrong ones lose less than
    short ones."""

    kind: Literal["length"] = "length"
    max_tokens: int = Field(31_744, ge=1)
    """Length at which a correct answer is worth the least."""
    correct_from: int = Field(25_600, ge=0)
    """Length up to which a correct answer is worth the most, in tokens."""
    wrong_until: int = Field(3_702, ge=1)
    """Length from which a wrong answer costs the least, in tokens."""
    correct: tuple[float, float] = (0.5, 1.0)
    """Least and most for a correct answer."""
    wrong: tuple[float, float] = (-1.0, -0.5)
    """Most and least loss for a wrong answer. A truncated answer gets the second."""


class OverlongTerm(Settings):
    """Soft overlong punishment, added (DAPO, Yu et al. 2025, arXiv:2503.14476, equation 13; its lengths are
    the defaults)."""

    kind: Literal["overlong"] = "overlong"
    max_tokens: int = Field(20_480, ge=1)
    """Length from which the whole penalty applies."""
    cache_tokens: int = Field(4_096, ge=1)
    """The penalty grows from 0 over this many tokens before ``max_tokens``."""
    weight: float = 1.0
    """The whole penalty."""


class FormatTerm(Settings):
    """Added where the form is wrong: the thought is not one closed block, or there is not exactly one box
    after it."""

    kind: Literal["format"] = "format"
    penalty: float = Field(0.5, ge=0)
    """Taken off for each of the two."""
    think: bool = True
    """Whether a closed thought is asked for."""
    box: bool = True
    """Whether exactly one box is asked for."""


class RepetitionTerm(Settings):
    """Added: minus the share of n-grams that occur more often than allowed."""

    kind: Literal["repetition"] = "repetition"
    ngram: int = Field(5, ge=1)
    """Words in an n-gram."""
    allowed: int = Field(5, ge=1)
    """Times an n-gram may occur before it counts as repetition."""
    weight: float = 1.0
    """Penalty of a response that is nothing but repetition."""


class LanguageTerm(Settings):
    """Added: minus the share of letters that are in another script than the question's."""

    kind: Literal["language"] = "language"
    weight: float = 1.0
    """Penalty of a response that is all in another script."""
    free_ratio: float = Field(0.05, ge=0, le=1)
    """Share of foreign letters that costs nothing (Greek letters and names)."""


ShapingTerm = Annotated[
    LengthTerm | OverlongTerm | FormatTerm | RepetitionTerm | LanguageTerm, Field(discriminator="kind")
]


class JudgeConfig(Settings):
    """A model as grader, behind any OpenAI-compatible endpoint."""

    url: str = ""
    """Base address, like http://127.0.0.1:8000/v1. Empty: no judge."""

    model: str = ""
    """The model's name at that endpoint."""

    api_key_env: str = ""
    """Name of the environment variable with the key; empty: none is sent."""

    rubric: str = ""
    """What to judge by, in words; empty: agreement with the reference answer where there is one, else
    correctness."""

    deadline_seconds: float = Field(60.0, gt=0)
    """Longest time for one answer, retries included; then the verdict is ``timeout``."""

    retries: int = Field(3, ge=0)
    """Further tries after a refused, failed or unreadable reply."""

    concurrency: int = Field(16, ge=1)
    """Requests at once from one pool."""

    cache: int = Field(4096, ge=0)
    """Verdicts remembered, by everything that was asked."""

    max_tokens: int = Field(2048, ge=1)
    """Longest reply of the judge."""

    response_chars: int = Field(20_000, ge=1)
    """The end of an answer (after the thought) that the judge gets to see."""


class RewardsConfig(Settings):
    """Graders by ability, and the worker processes they run in."""

    workers: int = Field(2, ge=1)
    """Worker processes per pool (a generator has one pool)."""

    queue: int = Field(1024, ge=1)
    """Answers that may wait for a worker per caller; a caller with more waits until one is graded."""

    memory_bytes: int = Field(2 << 30, ge=256 << 20)
    """Address space of one grading worker. An answer that needs more gets the verdict ``error``."""

    math: MathConfig = MathConfig()

    code: CodeConfig = CodeConfig()

    judge: JudgeConfig = JudgeConfig()

    abilities: dict[str, Literal["math", "code", "judge"]] = Field(default={"math": "math", "code": "code"})
    """Which grader a dataset row gets, by its ``ability``."""

    shaping: tuple[ShapingTerm, ...] = ()
    """Terms applied in this order to the grader's value; answers with verdict ``timeout`` or ``error`` keep
    theirs."""
