"""Benchmarks on a generator that works: one version answers all of them, and training continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from actors.engines.base import Sample, SamplingLimits
from actors.engines.scripted import Script, ScriptedEngine
from actors.sampling.benchmark import Benchmark, summarize
from buffer.records.versions import PolicyVersion
from helpers.small_run import SmallRun, first_token

TEST = SamplingLimits(max_tokens=16, temperature=0.5)


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> list[PolicyVersion]:
    """The version of every span of the responses to a benchmark, recognised by its temperature."""
    seen: list[PolicyVersion] = []
    sample = ScriptedEngine.sample

    async def watched(
        engine: ScriptedEngine, prompt: Sequence[int], n: int, limits: SamplingLimits, on_tokens: Any = None
    ) -> AsyncGenerator[Sample, None]:
        async for each in sample(engine, prompt, n, limits, on_tokens):
            if limits.temperature == TEST.temperature:
                seen.extend(span.version for span in each.spans)
            yield each

    monkeypatch.setattr(ScriptedEngine, "sample", watched)
    return seen


def test_one_version_answers_all_while_others_train_on_newer_ones(
    small_run: SmallRun, versions: list[PolicyVersion]
) -> None:
    slow = Script(text=first_token, seconds_per_token=0.05)
    rows = tuple(small_run.dataset[index] for index in range(48))
    benchmarks = [Benchmark(name, rows, 4, TEST) for name in ("one", "two")]
    small_run.publish(0)

    def train() -> PolicyVersion:
        for step in range(8):
            small_run.train(step)
        announced = small_run.version(8)
        small_run.buffer.driver.stop("enough")
        return announced

    async def main() -> tuple[Any, PolicyVersion]:
        evaluating, other = small_run.generator("evaluating", slow), small_run.generator("other")
        running = [asyncio.create_task(each.run()) for each in (evaluating, other)]
        training = asyncio.create_task(asyncio.to_thread(train))
        answered = asyncio.create_task(evaluating.evaluate(small_run.version(1), benchmarks, 60.0))
        reached = await training
        result = await answered
        await asyncio.gather(*running)
        for each in (evaluating, other):
            await each.close()
        return result, reached

    (held, answers), reached = asyncio.run(main())
    assert small_run.version(1) <= held < reached
    assert set(versions) == {held}
    for rows_answered in answers:
        result = summarize(rows_answered)
        assert (result.problems, result.k, result.left_out) == (48, 4, 0)


def test_it_waits_for_the_version_it_was_asked_for(small_run: SmallRun) -> None:
    small_run.publish(0)
    benchmark = Benchmark("one", (small_run.dataset[0],), 1, TEST)

    async def main() -> PolicyVersion:
        generator = small_run.generator("one")
        running = asyncio.create_task(generator.run())
        asked = asyncio.create_task(generator.evaluate(small_run.version(3), [benchmark], 60.0))
        with pytest.raises(TimeoutError):
            await generator.evaluate(small_run.version(9), [benchmark], 0.5)
        assert not asked.done()
        small_run.publish(3)
        held, _ = await asked
        small_run.buffer.driver.stop("enough")
        await running
        await generator.close()
        return held

    assert asyncio.run(main()) == small_run.version(3)


def test_an_evaluation_engine_follows_the_weights_and_takes_no_part_in_training(small_run: SmallRun) -> None:
    rows = tuple(small_run.dataset[index] for index in range(4))
    small_run.publish(0)

    async def main() -> tuple[PolicyVersion, PolicyVersion]:
        generator = small_run.generator("own")
        following = asyncio.create_task(generator.follow())
        first, _ = await generator.evaluate(small_run.version(0), [Benchmark("one", rows, 4, TEST)], 30.0)
        small_run.publish(1)
        second, _ = await generator.evaluate(small_run.version(1), [Benchmark("one", rows, 4, TEST)], 30.0)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await generator.close()
        return first, second

    assert asyncio.run(main()) == (small_run.version(0), small_run.version(1))
    assert small_run.buffer.state.books().started == 0
