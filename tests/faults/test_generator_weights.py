"""What happens to generators when weights are torn, vanish, or the disk is full at a publish."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.generator.generator import Generator
from buffer.weights.base import WeightsError
from helpers.small_run import SmallRun


@pytest.fixture
def run(tmp_path: Path) -> Iterator[SmallRun]:
    small = SmallRun(tmp_path)
    small.publish(0)
    yield small
    small.close()


async def with_generator(run: SmallRun, learner: Callable[[], None]) -> Generator:
    """Run a generator while ``learner`` (a blocking function) does its work; the generator afterwards."""
    generator = run.generator("one")
    running = asyncio.create_task(generator.run())
    await asyncio.to_thread(learner)
    run.buffer.driver.stop("enough")
    await running
    await generator.close()
    return generator


def test_a_flipped_byte_is_counted_and_training_continues_with_the_next_version(run: SmallRun) -> None:
    def learner() -> None:
        run.train(0)
        file = run.weights.folder(run.version(1)) / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-1] + b"?")
        for step in range(1, 4):
            run.train(step)

    generator = asyncio.run(with_generator(run, learner))
    versions = [span.version for g in run.groups for r in g.rollouts for span in r.spans]
    assert len(run.groups) == 16
    assert max(versions) >= run.version(2)
    assert generator.report()["version"] >= str(run.version(3))


def test_a_version_that_vanished_is_passed_over(run: SmallRun) -> None:
    def learner() -> None:
        run.train(0)
        run.weights.publish(run.version(7), run.writer(7))
        run.buffer.learner.announce(run.version(8))
        run.train(1, 60.0)

    generator = asyncio.run(with_generator(run, learner))
    assert generator.report()["load_failures"].get("VersionGone", 0) >= 1


def test_a_full_disk_at_publish_leaves_the_old_version_serving(run: SmallRun) -> None:
    def full(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    def learner() -> None:
        run.train(0)
        with pytest.raises(WeightsError, match="No space left"):
            run.weights.publish(run.version(9), full)
        run.train(1)

    asyncio.run(with_generator(run, learner))
    assert len(run.groups) == 8
    assert run.version(9) not in run.weights.versions()
    run.buffer.driver.end("run ended")
    assert run.buffer.state.books().balanced
