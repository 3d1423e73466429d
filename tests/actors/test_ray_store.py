"""RayWeights: versions outlive their publisher, are verified, and reach late joiners and those outside."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from actors.weights import ray_store
from actors.weights.ray_store import RayWeights, weight_board
from buffer.records.versions import PolicyVersion
from buffer.weights.base import TornWeights, VersionGone, WeightsError
from buffer.weights.delta import DeltaWeights
from buffer.weights.disk import DiskWeights
from buffer.weights.http_client import HttpWeights
from buffer.weights.http_server import WeightServer
from helpers.weight_files import content, version

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

BOARD = "weights-test"


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    import ray

    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 * 2**20,
        _temp_dir=f"/tmp/magicrl-test-{os.getpid()}",  # Ray's sockets need a short path
    )
    yield
    ray.shutdown()


@pytest.fixture
def board(cluster: None) -> Iterator[str]:
    with weight_board(BOARD, keep=2):
        yield BOARD


@pytest.fixture
def open_weights(board: str, tmp_path: Path) -> Callable[[str], RayWeights]:
    return lambda name: RayWeights(board, DiskWeights(tmp_path / name, keep=1), timeout_seconds=30)


def ask(board: str, method: str, *arguments: Any) -> Any:
    """Call the board's actor."""
    import ray

    return ray.get(getattr(ray.get_actor(board), method).remote(*arguments), timeout=30)


def test_what_is_published_in_pieces_is_fetched_whole(
    open_weights: Callable[[str], RayWeights], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_store, "CHUNK_BYTES", 300_000)
    learner, generator = open_weights("learner"), open_weights("generator")
    with pytest.raises(VersionGone), generator.fetch():
        pass
    data = [np.random.default_rng(step).bytes(2_000_001) for step in range(3)]
    for step in range(3):
        published = learner.publish(version(step), content(data[step]), {"dtype": "float32"})
        assert published.bytes == 2_000_001
    assert generator.versions() == [version(1), version(2)]
    with generator.fetch() as fetched:
        assert fetched.version == version(2)
        assert (fetched.path / "model.safetensors").read_bytes() == data[2]
        assert fetched.manifest.details == {"dtype": "float32"}
    with generator.fetch(version(1)) as fetched:
        assert (fetched.path / "model.safetensors").read_bytes() == data[1]
    with pytest.raises(VersionGone, match=r"1\.0"), generator.fetch(version(0)):
        pass
    with pytest.raises(WeightsError, match="published already"):
        open_weights("another").publish(version(2), content(b"x"))
    generator.close()
    assert not (tmp_path / "generator").exists()


def test_weights_outlive_the_rank_that_published_them(
    board: str, open_weights: Callable[[str], RayWeights], tmp_path: Path
) -> None:
    import ray

    @ray.remote(num_cpus=0)
    class Rank:
        def publish(self, name: str, cache: Path) -> None:
            def write(folder: Path) -> None:
                (folder / "model.safetensors").write_bytes(b"w" * 1_000_000)

            RayWeights(name, DiskWeights(cache)).publish(PolicyVersion(1, 4), write)

    rank = Rank.remote()
    ray.get(rank.publish.remote(board, tmp_path / "rank"), timeout=60)
    ray.kill(rank)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(rank.publish.remote(board, tmp_path / "rank"), timeout=60)
    with open_weights("late").fetch() as fetched:
        assert fetched.version == version(4)
        assert (fetched.path / "model.safetensors").read_bytes() == b"w" * 1_000_000


def test_a_wrong_byte_is_found_and_nothing_of_it_is_kept(
    board: str, open_weights: Callable[[str], RayWeights], tmp_path: Path
) -> None:
    learner, generator = open_weights("learner"), open_weights("generator")
    learner.publish(version(1), content(b"good weights"))
    manifest, _ = ask(board, "find", "1.1")
    upload = ask(board, "begin")
    ask(board, "add", upload, "model.safetensors", np.frombuffer(b"good weightz", dtype=np.uint8))
    ask(board, "publish", upload, manifest.replace("1.1", "1.2"))
    with pytest.raises(TornWeights), generator.fetch():
        pass
    assert DiskWeights(tmp_path / "generator").versions() == []
    with generator.fetch(version(1)) as fetched:
        assert (fetched.path / "model.safetensors").read_bytes() == b"good weights"
    with pytest.raises(WeightsError, match="another publisher"):
        ask(board, "add", upload, "model.safetensors", np.zeros(1, np.uint8))


def test_references_keep_a_version_that_is_retired_meanwhile(
    board: str, open_weights: Callable[[str], RayWeights]
) -> None:
    import ray

    learner, generator = open_weights("learner"), open_weights("generator")
    learner.publish(version(0), content(b"old" * 100_000))
    _, files = ask(board, "find", "1.0")
    for step in range(1, 4):
        learner.publish(version(step), content(b"new" * 100_000))
    assert version(0) not in generator.versions()
    pieces = ray.get(files["model.safetensors"], timeout=30)
    assert b"".join(piece.tobytes() for piece in pieces) == b"old" * 100_000


def test_deltas_keep_what_they_stand_on(open_weights: Callable[[str], RayWeights], tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    learner = DeltaWeights(open_weights("shared"), DiskWeights(tmp_path / "l", keep=2), full_every=8)
    reader = DeltaWeights(open_weights("downloads"), DiskWeights(tmp_path / "r", keep=2), full_every=8)
    tensor = random.normal(size=50_000).astype(np.float16)
    for step in range(5):
        tensor = tensor.copy()
        tensor[random.integers(0, len(tensor), 200)] += 1
        save_file({"w": tensor}, tmp_path / "now")
        whole = (tmp_path / "now").read_bytes()
        published = learner.publish(version(step), content(whole), {"dtype": "float16"})
        assert step == 0 or published.bytes < 0.1 * len(whole)
        if step in (1, 4):
            with reader.fetch() as fetched:
                assert (fetched.path / "model.safetensors").read_bytes() == whole


def test_they_are_served_to_generators_outside_the_cluster(
    open_weights: Callable[[str], RayWeights], tmp_path: Path
) -> None:
    open_weights("learner").publish(version(3), content(b"abc"))
    with WeightServer(open_weights("driver")) as server:
        outside = HttpWeights(server.url, DiskWeights(tmp_path / "outside"), timeout_seconds=10)
        with outside.fetch() as fetched:
            assert fetched.version == version(3)
            assert (fetched.path / "model.safetensors").read_bytes() == b"abc"


def test_without_a_board_it_is_a_weights_error(cluster: None, tmp_path: Path) -> None:
    store: Any = RayWeights("nobody", DiskWeights(tmp_path))
    with pytest.raises(WeightsError, match="no actor nobody"), store.fetch():
        pass


def test_outside_ray_there_is_no_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_store.ray, "is_initialized", lambda: False)
    with pytest.raises(ValueError, match="not part of a Ray cluster"):
        RayWeights(BOARD, DiskWeights(tmp_path))
