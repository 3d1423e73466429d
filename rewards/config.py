"""Settings of grading: the workers' limits, each grader, and each shaping term."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rewards.settings import Settings


class MathConfig(Settings):
    """Settings of the grader of mathematical answers."""

    answer: Literal["boxed_only", "boxed_or_stated"] = "boxed_or_stated"
    """``boxed_only``: only a ``\\boxed{}`` after the last ``</think>`` counts. ``boxed_or_stated``: where
    there is no box, a clear final statement ("the answer is 5") counts too."""

    deadline_seconds: float = Field(5.0, gt=0)
    """Time limit for one answer, in seconds; past it the worker is killed and the verdict is ``timeout``."""


class CodeConfig(Settings):
    """Settings of the grader of programs. Limits are per test unless stated otherwise."""

    wall_seconds: float = Field(6.0, gt=0)
    """Time limit of one test, in seconds; past it the test fails (the published Skywork and LiveCodeBench
    harnesses have the same limit)."""

    cpu_seconds: int = Field(6, ge=1)
    """CPU time limit of each process of a test, in seconds."""

    total_seconds: float = Field(60.0, gt=0)
    """Time limit of all tests of one response together, in seconds; the rest then counts as failed."""

    memory_bytes: int = Field(1 << 30, ge=64 << 20)
    """Memory limit of all processes of a test together, in bytes: enforced by a memory cgroup where one can
    be made, else by polling."""

    address_bytes: int = Field(4 << 30, ge=256 << 20)
    """Address space limit of each process (RLIMIT_AS), in bytes; a thread stack of 256 MiB must fit."""

    processes: int = Field(128, ge=2)
    """Limit on processes and threads that exist at once."""

    scratch_bytes: int = Field(64 << 20, ge=1 << 20)
    """Size of the private /tmp, and of /dev/shm as well, in bytes; both are in memory and are emptied after
    each test."""

    output_bytes: int = Field(16 << 20, ge=1 << 10)
    """Limit on a program's output, and on each file it writes, in bytes."""

    fractional: bool = False
    """Whether the reward is the share of tests passed (all are run) instead of 1 for all and 0 otherwise."""

    float_tolerance: float = Field(1e-6, ge=0)
    """Relative tolerance where the expected value is a float; absolute as well for values from 0.001."""

    python: str = "auto"
    """Interpreter inside the sandbox. ``auto``: /usr/bin/python3 or /usr/local/bin/python3, preferably of
    this environment's version, whose numpy and sortedcontainers programs can then import."""

    unsafe: bool = False
    """Whether programs run without the sandbox, for machines where it cannot be built or fails its escape
    probe. They then have the rights of this process."""


class LengthTerm(Settings):
    """Length-aware accuracy (Phi-4-reasoning-plus, Abdin et al. 2025, arXiv:2504.21318, section 4.1; its
    lengths are the defaults). It replaces the grader's value by one that also depends on length: short
    correct answers get the most, then long correct ones; long wrong ones lose less than short ones."""

    kind: Literal["length"] = "length"
    max_tokens: int = Field(31_744, ge=1)
    """Length from which a correct answer is worth the least, in tokens."""
    correct_from: int = Field(25_600, ge=0)
    """Length up to which a correct answer is worth the most, in tokens."""
    wrong_until: int = Field(3_702, ge=1)
    """Length from which a wrong answer costs the least, in tokens."""
    correct: tuple[float, float] = (0.5, 1.0)
    """Least and greatest value of a correct answer."""
    wrong: tuple[float, float] = (-1.0, -0.5)
    """Least and greatest value of a wrong answer; a truncated one gets the greatest."""


class OverlongTerm(Settings):
    """Soft overlong punishment (DAPO, Yu et al. 2025, arXiv:2503.14476, equation 13; its lengths are the
    defaults), added to the value."""

    kind: Literal["overlong"] = "overlong"
    max_tokens: int = Field(20_480, ge=1)
    """Length from which the whole penalty applies, in tokens."""
    cache_tokens: int = Field(4_096, ge=1)
    """Length before ``max_tokens`` over which the penalty grows from 0, in tokens."""
    weight: float = 1.0
    """The whole penalty."""


class FormatTerm(Settings):
    """A penalty for a wrong form: the thought is not one closed block, or not exactly one box follows it."""

    kind: Literal["format"] = "format"
    penalty: float = Field(0.5, ge=0)
    """Penalty for each of the two."""
    think: bool = True
    """Whether a closed thought is required."""
    box: bool = True
    """Whether exactly one box is required."""


class RepetitionTerm(Settings):
    """A penalty of the share of n-grams that occur more often than allowed."""

    kind: Literal["repetition"] = "repetition"
    ngram: int = Field(5, ge=1)
    """Length of an n-gram, in words."""
    allowed: int = Field(5, ge=1)
    """Number of times an n-gram may occur before it counts as repetition."""
    weight: float = 1.0
    """Penalty for a response that is nothing but repetition."""


class LanguageTerm(Settings):
    """A penalty of the share of letters in another script than the question's."""

    kind: Literal["language"] = "language"
    weight: float = 1.0
    """Penalty for a response that is entirely in another script."""
    free_ratio: float = Field(0.05, ge=0, le=1)
    """Share of foreign letters without a penalty (Greek letters, names)."""


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
    """Environment variable that has the key; empty: no key is sent."""

    rubric: str = ""
    """Criteria of the judgement, in words; empty: agreement with the reference answer where there is one,
    else correctness."""

    deadline_seconds: float = Field(60.0, gt=0)
    """Time limit for one answer, retries included, in seconds; past it the verdict is ``timeout``."""

    retries: int = Field(3, ge=0)
    """Number of retries after a refused, failed or unreadable reply."""

    concurrency: int = Field(16, ge=1)
    """Number of concurrent requests of one pool."""

    cache: int = Field(4096, ge=0)
    """Number of cached verdicts; the key is the whole request."""

    max_tokens: int = Field(2048, ge=1)
    """Length limit of the judge's reply, in tokens."""

    response_chars: int = Field(20_000, ge=1)
    """Length of the end of an answer (after the thought) that the judge sees, in characters."""


class RewardsConfig(Settings):
    """Graders by ability, and the worker processes they run in."""

    workers: int = Field(2, ge=1)
    """Number of worker processes per pool (a generator has one pool)."""

    queue: int = Field(1024, ge=1)
    """Number of answers that each caller may queue; a caller with more waits until one is graded."""

    memory_bytes: int = Field(2 << 30, ge=256 << 20)
    """Address space limit of one grading worker, in bytes. An answer that needs more gets the verdict
    ``error``."""

    math: MathConfig = MathConfig()

    code: CodeConfig = CodeConfig()

    judge: JudgeConfig = JudgeConfig()

    abilities: dict[str, Literal["math", "code", "judge"]] = Field(default={"math": "math", "code": "code"})
    """Grader of a dataset row, by its ``ability``."""

    shaping: tuple[ShapingTerm, ...] = ()
    """Terms applied in this order to the grader's value; not to answers with the verdict ``timeout`` or
    ``error``."""
