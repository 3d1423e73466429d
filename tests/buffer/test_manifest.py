"""Manifests describe a folder to the byte, and are refused where they could not have been written."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from buffer.weights.manifest import FileEntry, Manifest
from helpers.weight_files import version


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "rank0.pt").write_bytes(b"weights" * 1_000_000)
    (tmp_path / "state.json").write_text("{}")
    return tmp_path


def test_all_files_are_described_and_the_text_reads_back(folder: Path) -> None:
    manifest = Manifest.of(folder, version(3), {"dtype": "float16", "base": "1.2"})
    assert manifest.files == {
        "engine/rank0.pt": FileEntry(7_000_000, f"{zlib.crc32(b'weights' * 1_000_000):08x}"),
        "state.json": FileEntry(2, f"{zlib.crc32(b'{}'):08x}"),
    }
    assert (manifest.bytes, manifest.base) == (7_000_002, version(2))
    assert Manifest.parse(manifest.dump()) == manifest


def test_the_first_file_that_differs_is_named(folder: Path) -> None:
    manifest = Manifest.of(folder, version(3), {})
    assert manifest.mismatch(folder) is None
    (folder / "state.json").write_text("[]")
    assert str(manifest.mismatch(folder)).startswith("state.json differs from its checksum")
    (folder / "state.json").unlink()
    assert str(manifest.mismatch(folder)).startswith("state.json cannot be read")


@pytest.mark.parametrize("name", ["../passwd", "/etc/passwd", ".hidden", "engine/../../passwd", ""])
def test_names_outside_the_folder_are_refused(folder: Path, name: str) -> None:
    body = json.loads(Manifest.of(folder, version(3), {}).dump())
    body["files"] = {name: {"bytes": 1, "crc32": "00000000"}}
    with pytest.raises(ValueError, match="plain name"):
        Manifest.parse(json.dumps(body))


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "1"},
        {"files": []},
        {"files": {"a": {"bytes": 1}}},
        {"details": {"base": "x"}},
        {"details": 1},
    ],
)
def test_anything_else_is_refused(folder: Path, changes: dict[str, object]) -> None:
    body = json.loads(Manifest.of(folder, version(3), {}).dump())
    with pytest.raises(ValueError, match="unreadable manifest"):
        Manifest.parse(json.dumps(body | changes))
