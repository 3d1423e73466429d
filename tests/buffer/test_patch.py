"""Patches: bit-exact, and refused where they are damaged or applied to another file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buffer.weights.patch import BadPatch, apply_patch, make_patch


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
