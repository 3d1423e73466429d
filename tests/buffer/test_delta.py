"""Patches and DeltaWeights: bit-exact, small, and able to catch up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from buffer.records.versions import PolicyVersion
from buffer.weights.base import TornWeights
from buffer.weights.delta import DeltaWeights
from buffer.weights.disk import DiskWeights
from buffer.weights.patch import BadPatch, apply_patch, make_patch

Tensors = dict[str, np.ndarray]


def version(step: int, lineage: int = 1) -> PolicyVersion:
    return PolicyVersion(lineage, step)


def saved(tensors: Tensors) -> Callable[[Path], None]:
    return lambda folder: save_file(tensors, folder / "model.safetensors")


def changed(tensors: Tensors, random: np.random.Generator, share: float) -> Tensors:
    """A copy in which ``share`` of the 16-bit elements moved by one unit in the last place."""
    result = {}
    for name, tensor in tensors.items():
        bits = tensor.view(np.uint16).copy()
        places = random.random(bits.shape) < share
        bits[places] += random.choice([1, 0xFFFF], size=int(places.sum())).astype(np.uint16)
        result[name] = bits.view(tensor.dtype)
    return result


def random_tensors(random: np.random.Generator, size: int = 1000) -> Tensors:
    return {
        "a": random.normal(size=(size, 7)).astype(np.float16),
        "b": random.normal(size=size).astype(np.float16),
    }


@settings(max_examples=60, deadline=None)
@given(
    old=st.binary(min_size=0, max_size=400),
    edits=st.lists(st.tuples(st.integers(0, 399), st.integers(0, 255)), max_size=40),
    width=st.sampled_from([1, 2, 4]),
)
def test_a_patch_restores_any_bytes(
    tmp_path_factory: pytest.TempPathFactory, old: bytes, edits: list[tuple[int, int]], width: int
) -> None:
    folder = tmp_path_factory.mktemp("patch")
    old = old[: len(old) // width * width]
    new = bytearray(old)
    for place, value in edits:
        if place < len(new):
            new[place] = value
    (folder / "old").write_bytes(old)
    (folder / "new").write_bytes(new)
    patch = make_patch(folder / "old", folder / "new", width)
    assert patch is not None
    apply_patch(patch, folder / "old", folder / "made")
    assert (folder / "made").read_bytes() == bytes(new)


def test_another_layout_has_no_patch(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"1234")
    (tmp_path / "new").write_bytes(b"123456")
    assert make_patch(tmp_path / "old", tmp_path / "new", 2) is None


@pytest.mark.parametrize("place", [0, 3, 40, -1])
def test_a_damaged_patch_or_a_wrong_base_is_refused(tmp_path: Path, place: int) -> None:
    random = np.random.default_rng(0)
    old = random.integers(0, 255, 4000, dtype=np.uint8).tobytes()
    (tmp_path / "old").write_bytes(old)
    (tmp_path / "other").write_bytes(old[::-1])
    (tmp_path / "new").write_bytes(old[:2000] + bytes(100) + old[2100:])
    patch = make_patch(tmp_path / "old", tmp_path / "new", 2)
    assert patch is not None
    with pytest.raises(BadPatch, match="something else"):
        apply_patch(patch, tmp_path / "other", tmp_path / "made")
    damaged = bytearray(patch)
    damaged[place] ^= 0xFF
    with pytest.raises(BadPatch):
        apply_patch(bytes(damaged), tmp_path / "old", tmp_path / "made")


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


def test_a_copy_that_is_damaged_here_is_put_together_anew(tmp_path: Path) -> None:
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
