"""DeltaWeights: bit-exact, small, and able to catch up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from buffer.weights.base import TornWeights
from buffer.weights.delta import DeltaWeights
from buffer.weights.disk import DiskWeights
from helpers.weight_files import changed, random_tensors, saved, version


def test_200_updates_with_gaps_are_bit_exact(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    shared = DiskWeights(tmp_path / "shared", keep=3)
    learner = DeltaWeights(shared, DiskWeights(tmp_path / "learner", keep=2), full_every=7)
    eager = DeltaWeights(DiskWeights(tmp_path / "shared"), DiskWeights(tmp_path / "eager", keep=2))
    lazy = DeltaWeights(DiskWeights(tmp_path / "shared"), DiskWeights(tmp_path / "lazy", keep=2))
    tensors = random_tensors(random)
    for step in range(200):
        lineage = 1 + step // 90
        learner.publish(version(step, lineage), saved(tensors), {"dtype": "float16"})
        with eager.fetch() as fetched:
            assert fetched.version == version(step, lineage)
            assert same(fetched.path, tmp_path / "learner" / str(lineage) / str(step))
        if random.random() < 0.1:
            with lazy.fetch() as fetched:
                assert same(fetched.path, tmp_path / "learner" / str(lineage) / str(step))
                assert fetched.manifest.base is None
        tensors = changed(tensors, random, 0.01)
    late = DeltaWeights(DiskWeights(tmp_path / "shared"), DiskWeights(tmp_path / "late", keep=2))
    with late.fetch() as fetched:
        assert same(fetched.path, tmp_path / "learner/3/199")
    assert len(shared.versions()) <= 3 + 7


def same(one: Path, other: Path) -> bool:
    return (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


def test_deltas_are_small_and_the_first_of_a_lineage_is_whole(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    shared = DiskWeights(tmp_path / "shared", keep=9)
    learner = DeltaWeights(shared, DiskWeights(tmp_path / "cache", keep=2), full_every=5)
    tensors = random_tensors(random, size=20_000)
    sizes, whole = [], []
    for step in range(7):
        number = version(step, lineage=1 + (step == 6))
        sizes.append(learner.publish(number, saved(tensors), {"dtype": "float16"}).bytes)
        with shared.fetch(number) as fetched:
            whole.append(fetched.manifest.base is None)
        tensors = changed(tensors, random, 0.005)
    assert whole == [True, False, False, False, False, True, True]
    assert all(size < 0.015 * sizes[0] for size, full in zip(sizes, whole, strict=True) if not full)


def test_a_torn_patch_leaves_the_cache_as_it_was(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    shared = DiskWeights(tmp_path / "shared", keep=9)
    learner = DeltaWeights(shared, DiskWeights(tmp_path / "cache", keep=2))
    reader = DeltaWeights(shared, DiskWeights(tmp_path / "reader", keep=2))
    tensors = random_tensors(random)
    learner.publish(version(0), saved(tensors), {"dtype": "float16"})
    with reader.fetch():
        pass
    learner.publish(version(1), saved(changed(tensors, random, 0.01)), {"dtype": "float16"})
    patch = tmp_path / "shared/1/1/model.safetensors.patch"
    patch.write_bytes(patch.read_bytes()[:-2] + b"xx")
    with pytest.raises(TornWeights), reader.fetch():
        pass
    assert DiskWeights(tmp_path / "reader").versions() == [version(0)]


def test_a_damaged_cached_version_is_rebuilt(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    shared = DiskWeights(tmp_path / "shared", keep=2)
    learner = DeltaWeights(shared, DiskWeights(tmp_path / "cache", keep=2))
    reader = DeltaWeights(shared, DiskWeights(tmp_path / "reader", keep=2))
    tensors = random_tensors(random)
    for step in range(4):
        learner.publish(version(step), saved(tensors), {"dtype": "float16"})
        tensors = changed(tensors, random, 0.01)
        with reader.fetch() as fetched:
            assert same(fetched.path, tmp_path / f"cache/1/{step}")
        if step == 2:
            file = fetched.path / "model.safetensors"
            file.write_bytes(file.read_bytes()[:-1] + b"?")
