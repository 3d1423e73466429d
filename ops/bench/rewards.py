"""Grading against math-verify in the same process, and sandboxed tests against bare processes."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from statistics import median

from ops.bench.timing import Clock, Work, by_turns, seconds
from rewards.code.sandbox.container import SandboxUnavailable, interpreter
from rewards.code.sandbox.sandbox import Sandbox
from rewards.config import CodeConfig, MathConfig, RewardsConfig
from rewards.math.reward import MathReward
from rewards.pool.pool import GraderPool
from rewards.reward import Problem

ORDINARY = [
    (r"\frac{N}{2}", r"\boxed{N/2}"), ("N", r"\boxed{N}"), (r"N\sqrt{13}", r"\boxed{\sqrt{13}\cdot N}"),
    ("(N,4)", r"\boxed{(N, 4)}"), ("N", r"\boxed{1N}"), ("x^2+2Nx+N^2", r"\boxed{(x+N)^2}"),
    (r"N\%", r"\boxed{N\%}"), ("115,N", r"\boxed{115N}"), (r"\frac{\pi}{N}", r"\boxed{\frac{\pi}{N}}"),
    (r"\{1,N,3\}", r"\boxed{\{3,N,1\}}"), ("[0,N)", r"\boxed{[0,N)}"), ("N", r"\boxed{x = N}"),
]  # fmt: skip
"""Reference and box of answers as they occur in training; N is another number each time."""

HOSTILE = [
    r"\boxed{9^{9^{9^{9}}}}", r"\boxed{(10^{7})!}", r"\boxed{\prod_{k=1}^{10^{8}} k}",
    r"\boxed{(a+b+c+d+e+f)^{200}}", "final answer " + "1 " * 20_000,
    r"\boxed{" + r"\frac{1}{" * 500 + "1" + "}" * 501,
]  # fmt: skip
THOUGHT = "Let me think about this step by step. " * 50

PROGRAM = "a, b = map(int, input().split())\nprint(a + b)\n"
TESTS = 10
ROUNDS = 8


def run() -> dict[str, float | int | str]:
    """Return rates and ratios; ratios are ours over the other's: above 1 is faster."""
    ours, theirs = _math_rates()
    report: dict[str, float | int | str] = {
        "math_vs_raw": ours / theirs,
        "math_answers_per_second": ours,
        "math_verify_answers_per_second": theirs,
        "math_p99_seconds": _math_p99(),
    }
    try:
        boxed, bare = _sandbox_rates()
    except SandboxUnavailable as missing:
        return report | {"sandbox_vs_exec": f"not measured: {missing}"}
    return report | {
        "sandbox_vs_exec": boxed / bare,
        "sandbox_tests_per_second": boxed,
        "exec_per_second": bare,
    }


def _math_rates() -> tuple[float, float]:
    """Return answers per CPU second: ours, and by math-verify's parse and verify."""
    from math_verify import parse, verify

    grader = MathReward(MathConfig())

    def ours(gold: str, response: str) -> None:
        grader.score(Problem("math", gold), response)

    def theirs(gold: str, response: str) -> None:
        verify(parse(f"\\boxed{{{gold}}}"), parse(response))

    return _rates(_grading(ours), _grading(theirs), len(ORDINARY), clock=time.process_time)


def _grading(grade: Callable[[str, str], None]) -> Work:
    """Return work that grades the ordinary answers, each time with another number: new to every cache."""
    numbers = count()

    def work() -> None:
        for gold, box in _answers(next(numbers)):
            grade(gold, f"{THOUGHT}</think> The answer is ${box}$.")

    return work


def _rates(ours: Work, theirs: Work, amount: int, clock: Clock) -> tuple[float, float]:
    """Return what both sides do per second; the first round warms up."""
    taken = by_turns({"ours": ours, "theirs": theirs}, ROUNDS + 1, clock)
    return amount / median(taken["ours"][1:]), amount / median(taken["theirs"][1:])


def _answers(number: int) -> list[tuple[str, str]]:
    """Return the ordinary answers with a number of three digits in place of N."""
    return [
        (gold.replace("N", str(501 + number)), box.replace("N", str(501 + number))) for gold, box in ORDINARY
    ]


def _math_p99() -> float:
    """Return the p99 seconds of an answer through the pool; one answer in twenty is hostile."""
    random.seed(0)
    taken = []
    with GraderPool(RewardsConfig(workers=1)) as pool:
        pool.score_many([(Problem("math", "1"), "\\boxed{1}")])
        for number in range(400):
            gold, box = random.choice(_answers(number))
            response = random.choice(HOSTILE) if number % 20 == 0 else box
            taken.append(seconds(partial(pool.score_many, [(Problem("math", gold), response)])))
    return sorted(taken)[int(0.99 * len(taken))]


def _sandbox_rates() -> tuple[float, float]:
    """Return tests per second: a sandbox per program of ten tests, and a bare interpreter per test."""
    config = CodeConfig()
    python = interpreter(config.python)
    return _rates(partial(_sandboxed, config), partial(_executed, python), TESTS, clock=time.perf_counter)


def _sandboxed(config: CodeConfig) -> None:
    with Sandbox(config) as sandbox:
        sandbox.load(PROGRAM)
        for _ in range(TESTS):
            if sandbox.run(b"3 5\n").output != b"8\n":
                raise SandboxUnavailable("the sandbox gave a wrong output")


def _executed(python: str) -> None:
    for _ in range(TESTS):
        subprocess.run([python, "-c", PROGRAM], input=b"3 5\n", stdout=subprocess.PIPE, check=True)
