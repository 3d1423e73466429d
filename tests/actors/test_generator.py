"""The generator's loop on a real Redis, with scripted sampling and real grading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.engines.base import EngineBroken, Sample, SamplingLimits
from actors.engines.scripted import Script
from actors.generator.environment import StageRules
from actors.generator.generator import Generator
from buffer.records.rollout import RolloutGroup
from buffer.store.flat_groups import KEPT, read_flat
from helpers.small_run import SmallRun, first_token, table
from helpers.waiting import until


async def trained(run: SmallRun, generators: list[Generator], steps: int, first: int = 0) -> None:
    """Run the generators until the instant learner has trained ``steps`` steps, then stop the run."""
    tasks = [asyncio.create_task(generator.run()) for generator in generators]
    learner = asyncio.create_task(asyncio.to_thread(train, run, first, steps))
    done, _ = await asyncio.wait([learner, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    await learner
    await asyncio.gather(*tasks)


def train(run: SmallRun, first: int, steps: int) -> None:
    for step in range(first, first + steps):
        run.train(step)
    run.buffer.driver.stop("enough")


def expected_logprobs(tokens: list[int], logits: np.ndarray) -> np.ndarray:
    """Written out again: log-softmax of the row of the token before (of token 0 for the first)."""
    rows = logits[[0, *tokens[:-1]]].astype(np.float64)
    return rows[np.arange(len(tokens)), tokens] - np.log(np.exp(rows).sum(-1))


def test_groups_are_sampled_graded_and_trained_on_weights_that_keep_coming(small_run: SmallRun) -> None:
    small_run.publish(0)

    async def main() -> Generator:
        generator = small_run.generator("one")
        await trained(small_run, [generator], steps=6)
        await generator.close()
        return generator

    generator = asyncio.run(main())
    assert len(small_run.groups) == 24
    for group in small_run.groups:
        answer = small_run.dataset[group.id.prompt].ground_truth
        assert len(group.rollouts) == 4
        assert len({rollout.reward for rollout in group.rollouts}) == 2
        for rollout in group.rollouts:
            tokens = rollout.tokens.tolist()
            correct = str(tokens[0]) == answer and tokens[0] != 0
            assert (rollout.reward == 1.0) == correct
            for span in rollout.spans:
                expected = expected_logprobs(tokens, table(span.version.step))[span.start : span.end]
                assert np.allclose(rollout.logprobs[span.start : span.end], expected, atol=1e-5)
    small_run.buffer.driver.end("run ended")
    books = small_run.buffer.state.books()
    assert books.balanced
    assert (books.trained, books.in_flight) == (24, 0)
    report = generator.report()
    assert report["tokens"] > 0
    assert sum(report["groups"].values()) >= 24  # the last push may have ended after the run
    assert report["loads"] >= 5
    assert 0.0 < report["idle_ratio"] < 1.0


def test_a_drained_generator_finishes_its_groups_and_another_takes_over(small_run: SmallRun) -> None:
    small_run.publish(0)

    async def main() -> None:
        first, second = small_run.generator("first"), small_run.generator("second")
        running = asyncio.create_task(first.run())
        await asyncio.to_thread(small_run.train, 0)
        first.drain("scaled down")
        await asyncio.wait_for(running, 60)
        assert small_run.buffer.state.books().in_flight == 0
        await trained(small_run, [second], steps=2, first=1)
        await first.close()
        await second.close()

    asyncio.run(main())
    assert small_run.buffer.state.books().trained == 12


def test_torn_weights_are_counted_and_the_old_policy_is_sampled_meanwhile(small_run: SmallRun) -> None:
    small_run.publish(0)
    slow = Script(
        text=first_token,
        seconds_per_token=0.02,  # groups are still being sampled when the torn version is found
        chunk_tokens=4,
        length=lambda random: 32,
    )

    def tear(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"not a tensor file")

    async def main() -> Generator:
        generator = small_run.generator("one", slow)
        running = asyncio.create_task(generator.run())
        await asyncio.to_thread(small_run.train, 0, 60.0, tear)
        await until(lambda: generator.report()["load_failures"])
        before = generator.report()
        assert (before["version"], before["lag"]) == ("1.0", 1)
        await until(lambda: generator.report()["tokens"] > before["tokens"])
        await asyncio.to_thread(small_run.train, 1)
        assert versions_of(small_run.groups[4:]) == {"1.0"}
        await until(lambda: generator.report()["version"] == "1.2")
        await asyncio.to_thread(small_run.buffer.driver.stop, "enough")
        await running
        await generator.close()
        return generator

    report = asyncio.run(main()).report()
    assert report["load_failures"].get("WeightsRefused", 0) >= 1


def versions_of(groups: list[RolloutGroup]) -> set[str]:
    """Return the versions that sampled any token of the groups."""
    return {str(span.version) for group in groups for rollout in group.rollouts for span in rollout.spans}


def test_an_engine_that_fails_ends_the_generator_with_its_own_words(
    small_run: SmallRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_run.publish(0)

    async def main() -> None:
        generator = small_run.generator("one")

        async def broken(*arguments: Any) -> AsyncGenerator[Sample, None]:
            raise EngineBroken("the engine caught fire")
            yield

        monkeypatch.setattr(generator.engine, "sample", broken)
        try:
            await asyncio.wait_for(generator.run(), 30)
        finally:
            await generator.close()

    with pytest.raises(EngineBroken, match="caught fire"):
        asyncio.run(main())
    assert small_run.buffer.state.books().in_flight > 0
    assert small_run.buffer.driver.leases() == []


def test_a_response_past_its_deadline_drops_its_group_with_its_length(small_run: SmallRun) -> None:
    small_run.publish(0)
    slow = Script(seconds_per_token=0.01, chunk_tokens=4, length=lambda random: 32)

    async def main() -> None:
        rules = StageRules(SamplingLimits(max_tokens=32, deadline=0.1))
        generator = small_run.generator("one", slow, rules)
        running = asyncio.create_task(generator.run())
        await until(lambda: sum(small_run.buffer.state.books().dropped.values()) >= 4)
        generator.drain("enough")
        await running
        await generator.close()

    asyncio.run(main())
    books = small_run.buffer.state.books()
    assert books.balanced
    assert set(books.dropped) == {"straggler deadline"}
    assert books.dropped_tokens["straggler deadline"] > 0


def test_rejected_groups_are_kept_for_the_end_of_an_exhausted_run(small_run: SmallRun) -> None:
    small_run.publish(0)

    async def main() -> None:
        generator = small_run.generator("one", Script(text=lambda tokens: "x" * 2000))
        await generator.run()  # until the buffer ends the run
        await generator.close()

    asyncio.run(main())
    assert small_run.buffer.state.stopping() == "data exhausted"
    seen = read_flat(small_run.buffer.state)
    assert 0 < len(seen) <= KEPT
    for flat in seen:
        assert flat.prompt.startswith("problem ")
        assert flat.gold == str(1 + int(flat.prompt.split()[1]) % 7)
        assert set(flat.verdicts) == {"no_answer"}
        assert len(flat.response) < 2000
        assert len(flat.truncated) == len(flat.verdicts) == 4
