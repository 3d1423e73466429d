"""The lossless difference of two files of equal layout, in elements of 1, 2 or 4 bytes.

Between two steps only a small share of bfloat16 weights changes, most of them by one unit in the last place.
A patch contains the distances between changed elements and the changes themselves (as wrapping integers).
Each byte plane is compressed on its own, because the high planes are almost all zeros. Patches are made of
whole safetensors files: their layout depends on names, shapes and dtypes only, and a file of another layout
has no patch.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import numpy as np
import zstandard
from numpy.typing import NDArray

FORMAT = 1
CHUNK_BYTES = 1 << 26
"""Size of the chunks in which files are compared and patched; a few of them are in memory at once."""

_UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32}


class BadPatch(Exception):
    """The patch is damaged or does not belong to this file; the message names which."""


class _Chunk(NamedTuple):
    changed: int
    gaps: bytes
    changes: bytes


def make_patch(old: Path, new: Path, width: int, crc32: int | None = None) -> bytes | None:
    """Return the patch from ``old`` to ``new``, elements of ``width`` bytes; None if their layouts differ.

    crc32: checksum of ``new`` if the caller knows it.
    """
    size = new.stat().st_size
    if old.stat().st_size != size or size % width:
        return None
    chunks, crc = [], 0
    for before, after in zip(_chunks(old, width), _chunks(new, width), strict=True):
        crc = zlib.crc32(after.data, crc) if crc32 is None else crc32
        chunks.append(_difference(before, after))
    return bytes(
        msgpack.packb({"format": FORMAT, "width": width, "bytes": size, "crc32": crc, "chunks": chunks})
    )


def apply_patch(patch: bytes, old: Path, new: Path) -> None:
    """Apply the patch to ``old`` and write ``new``. Raises BadPatch, and then ``new`` must not be used."""
    try:
        body = msgpack.unpackb(patch, strict_map_key=True)
        width, size, crc = int(body["width"]), int(body["bytes"]), int(body["crc32"])
        chunks = [_Chunk(*chunk) for chunk in body["chunks"]]
        known = body["format"] == FORMAT and width in _UNSIGNED
    except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
        raise BadPatch(f"patch for {old.name} is not readable: {error}") from error
    if not known or old.stat().st_size != size or size % width or len(chunks) != _chunk_count(size):
        raise BadPatch(f"patch is not for {old.name} of {old.stat().st_size} bytes")
    found = 0
    with new.open("wb") as file:
        for before, chunk in zip(_chunks(old, width), chunks, strict=True):
            after = _patched(before, chunk)
            found = zlib.crc32(after.data, found)
            file.write(after.data)
    if found != crc:
        raise BadPatch(f"patch made something else of {old.name}: checksum {found:08x} instead of {crc:08x}")


def _chunk_count(size: int) -> int:
    return -(-size // CHUNK_BYTES)


def _chunks(path: Path, width: int) -> Iterator[NDArray[Any]]:
    with path.open("rb") as file:
        while data := file.read(CHUNK_BYTES):
            yield np.frombuffer(data, dtype=_UNSIGNED[width])


def _difference(before: NDArray[Any], after: NDArray[Any]) -> _Chunk:
    places = np.flatnonzero(before != after)
    gaps = np.diff(places, prepend=-1) - 1
    return _Chunk(
        len(places), _pack_planes(gaps.astype(np.uint32)), _pack_planes(after[places] - before[places])
    )


def _patched(before: NDArray[Any], chunk: _Chunk) -> NDArray[Any]:
    if not 0 <= chunk.changed <= len(before):
        raise BadPatch(f"patch changes {chunk.changed} of {len(before)} elements")
    places = np.cumsum(_unpack_planes(chunk.gaps, chunk.changed, np.uint32).astype(np.int64) + 1) - 1
    if chunk.changed and places[-1] >= len(before):
        raise BadPatch("patch reaches beyond the end of the file")
    after = before.copy()
    after[places] += _unpack_planes(chunk.changes, chunk.changed, before.dtype)
    return after


def _pack_planes(values: NDArray[Any]) -> bytes:
    """Compress the byte planes of ``values``, the low bytes of all values first."""
    planes = values.view(np.uint8).reshape(len(values), values.dtype.itemsize).T
    return zstandard.ZstdCompressor(level=3).compress(np.ascontiguousarray(planes).tobytes())


def _unpack_planes(data: bytes, count: int, dtype: Any) -> NDArray[Any]:
    """Invert ``_pack_planes``, with memory for ``count`` values at most."""
    kind = np.dtype(dtype)
    expected = count * kind.itemsize
    try:
        raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=max(1, expected))
    except zstandard.ZstdError as error:
        raise BadPatch(f"patch does not decompress: {error}") from error
    if len(raw) != expected:
        raise BadPatch(f"patch holds {len(raw)} bytes where {expected} belong")
    planes = np.frombuffer(raw, dtype=np.uint8).reshape(kind.itemsize, count)
    values: NDArray[Any] = np.ascontiguousarray(planes.T).view(kind).reshape(count)
    return values
