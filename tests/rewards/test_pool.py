"""The pool: order, deadlines, killed processes, threads and event loops."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rewards.code.sandbox.cgroup import descendants
from rewards.config import MathConfig, RewardsConfig
from rewards.pool import worker_process
from rewards.pool.pool import GraderPool
from rewards.reward import Problem, Score


def _right(number: int) -> tuple[Problem, str]:
    return Problem("math", str(number)), f"\\boxed{{{number}}}"


@pytest.fixture
def graders() -> Callable[[], list[int]]:
    """Process ids of fork server and workers that this test started, the fork server first."""
    before = set(_graders())
    return lambda: sorted(set(_graders()) - before)


def _graders() -> list[int]:
    command = worker_process.__name__.encode()
    alive = []
    for pid in descendants(os.getpid()):
        try:
            if command in Path(f"/proc/{pid}/cmdline").read_bytes():
                alive.append(pid)
        except OSError:
            continue
    return alive


def test_results_come_in_the_order_asked(pool: GraderPool) -> None:
    items = [(Problem("math", str(k)), f"\\boxed{{{k + k % 2}}}") for k in range(200)]
    assert [score.value for score in pool.score_many(items)] == [float(k % 2 == 0) for k in range(200)]


def test_an_answer_past_its_deadline_costs_itself_only(graders: Callable[[], list[int]]) -> None:
    with GraderPool(RewardsConfig(workers=1, math=MathConfig(deadline_seconds=3))) as pool:
        pool.score_many([_right(0)])
        _, worker = graders()
        os.kill(worker, signal.SIGSTOP)  # hangs, whatever it is given
        scores = pool.score_many([_right(1), _right(2), _right(3)])
        assert [score.verdict for score in scores] == ["timeout", "correct", "correct"]
        assert worker not in graders()


HOSTILE = [
    "9^{9^{9^{9}}}",
    "((((9!)!)!)!)!",
    "2^{10^{10}}",
    "(10^{7})!",
    r"\sum_{k=1}^{10^{9}} \frac{1}{k!}",
    "".join(rf"\sum_{{{name}=1}}^{{2000}}" for name in "abcdfg") + "abcdfg",
    r"\prod_{k=1}^{10^{8}} k",
    "+".join(rf"\frac{{1}}{{3^{{{1_800_000 + k}}}}}" for k in range(40)),
    "(a+b+c+d+e+f)^{200}",
    r"\frac{1}{" * 5000 + "1" + "}" * 5000,
    "(" * 5000,
    r"\sqrt{" * 300 + "2" + "}" * 300,
    "9" * 15_000,
    ",".join(str(k) for k in range(5000)),
    r"\{" * 2000,
    "|" * 5000,
    "x" + "'" * 5000,
    "1" + "!" * 2000,
    r"\pm" * 500 + "1",
    r"\text{" * 1000,
    "a_" * 3000 + "1",
    "-" * 10_000 + "1",
    r"\binom{99999}{9999}" * 20,
]


def test_hostile_answers_are_wrong_and_quick(pool: GraderPool) -> None:
    scores = pool.score_many((Problem("math", "5"), f"\\boxed{{{answer}}}") for answer in HOSTILE)
    odd = [
        (answer[:30], score)
        for answer, score in zip(HOSTILE, scores, strict=True)
        if score.value or score.verdict == "timeout"
    ]
    assert odd == []


@pytest.mark.parametrize("victim", ["worker", "fork server"])
def test_a_killed_process_loses_no_other_result(victim: str, graders: Callable[[], list[int]]) -> None:
    with GraderPool(RewardsConfig(workers=2)) as pool:
        pool.score_many([_right(0)] * 4)
        fork_server = graders()[0]
        stop = threading.Event()

        def kill() -> None:
            while not stop.wait(0.1):
                workers = [pid for pid in graders() if pid != fork_server]
                for pid in workers[:1] if victim == "worker" else [fork_server]:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue

        killer = threading.Thread(target=kill)
        killer.start()
        scores = pool.score_many([_right(k) for k in range(1500)])
        stop.set()
        killer.join()
        died = [score for score in scores if score.verdict == "error"]
        assert len(scores) == 1500
        assert all(score.verdict == "correct" or "died" in score.detail for score in scores)
        assert len(died) < 100
        assert pool.score_many([_right(7)])[0].verdict == "correct"


def test_bad_items_affect_themselves_only(pool: GraderPool) -> None:
    items = [
        _right(1),
        (Problem("poetry", "5"), "\\boxed{5}"),
        (Problem("math", object()), "\\boxed{5}"),
        (Problem("math", "5"), "\udc80\\boxed{5}\x00"),
        (Problem("math", "5"), "x" * 3_000_000 + "\\boxed{5}"),
        _right(2),
    ]
    verdicts = [score.verdict for score in pool.score_many(items)]
    assert verdicts == ["correct", "error", "error", "correct", "correct", "correct"]


def test_an_event_loop_continues_while_answers_are_graded(graders: Callable[[], list[int]]) -> None:
    async def main(pool: GraderPool) -> Score:
        os.kill(graders()[1], signal.SIGSTOP)
        asked = asyncio.create_task(pool.score(*_right(1)))
        for _ in range(20):  # the loop turns while the answer waits for its worker
            await asyncio.sleep(0.001)
        assert not asked.done()
        os.kill(graders()[1], signal.SIGCONT)
        return await asked

    with GraderPool(RewardsConfig(workers=1, math=MathConfig(deadline_seconds=60))) as pool:
        pool.score_many([_right(0)])
        for _ in range(2):  # another event loop is no trouble
            assert asyncio.run(main(pool)).value == 1.0


def test_more_answers_than_fit_into_the_queue() -> None:
    with GraderPool(RewardsConfig(workers=1, queue=2)) as pool:

        async def main() -> list[Score]:
            return await asyncio.gather(*(pool.score(*_right(k)) for k in range(50)))

        assert all(score.value == 1.0 for score in asyncio.run(main()))
        assert all(score.value == 1.0 for score in pool.score_many([_right(k) for k in range(50)]))


def test_many_threads(pool: GraderPool) -> None:
    results: dict[int, list[Score]] = {}

    def ask(number: int) -> None:
        results[number] = pool.score_many([_right(number)] * 50)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(score.value == 1.0 for scores in results.values() for score in scores)
    assert len(results) == 8


def test_an_answer_that_needs_too_much_memory_is_an_error() -> None:
    patient = MathConfig(deadline_seconds=60)
    with GraderPool(RewardsConfig(workers=1, memory_bytes=256 << 20, math=patient)) as pool:
        scores = pool.score_many([(Problem("math", "1"), "\\boxed{1}" + " " * 120_000_000), _right(3)])
        assert [score.verdict for score in scores] == ["error", "correct"]


def test_closing_does_not_wait_for_what_is_left(graders: Callable[[], list[int]]) -> None:
    pool = GraderPool(RewardsConfig(workers=1, math=MathConfig(deadline_seconds=60)))
    pool.score_many([_right(0)])
    os.kill(graders()[1], signal.SIGSTOP)

    async def main() -> list[Score]:
        asked = [asyncio.create_task(pool.score(*_right(k))) for k in range(5)]
        await asyncio.sleep(0)  # all are in the pool's queue
        await asyncio.to_thread(pool.close)
        return await asyncio.gather(*asked)

    assert [score.verdict for score in asyncio.run(main())] == ["error"] * 5


def test_closing_leaves_no_process(graders: Callable[[], list[int]]) -> None:
    pool = GraderPool(RewardsConfig(workers=2))
    pool.score_many([_right(k) for k in range(10)])
    assert len(graders()) == 3
    pool.close()
    pool.close()
    deadline = time.monotonic() + 10
    while graders():
        assert time.monotonic() < deadline, "grading processes outlive their pool"
        threading.Event().wait(0.02)
    with pytest.raises(RuntimeError, match="closed"):
        pool.score_many([_right(1)])
