"""A group's wire format: a fixed header, then msgpack compressed by zstd.

Header (little endian): magic ``MGRG``, schema version u16, 2 zero bytes, raw length u64, CRC-32 u32 of all
else. The msgpack is one flat array (``_FIELDS``); numbers of all rollouts lie in a few long buffers rather
than in many small ones. Token ids and log-probabilities are stored as byte planes (all lowest bytes, then
all second ones, ...): ids have three equal upper planes at most, which is where their compression comes from.

Decoding trusts nothing: size, schema and checksum are checked before a byte is decompressed, decompression
proceeds in pieces up to the raw length, and no length field is trusted before its bytes are there.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import msgpack
import numpy as np
import zstandard
from numpy.typing import NDArray

from buffer.records.rollout import FINISHES, GroupId, GroupSummary, Rollout, RolloutGroup, VersionSpan
from buffer.records.versions import PolicyVersion
from rewards.reward import VERDICTS

SCHEMA = 1
_HEADER = struct.Struct("<4sHHQI")
_CHECKED = struct.Struct("<4sHHQ")
_MAGIC = b"MGRG"
_FIELDS = (
    *("id", "stage", "data_source", "prompt", "lengths", "tokens", "logprobs", "span_counts", "spans"),
    *("forced_counts", "forced", "finishes", "rewards", "verdicts", "details"),
)
_VERDICT_INDEX = {verdict: index for index, verdict in enumerate(VERDICTS)}
_FINISH_INDEX = {finish: index for index, finish in enumerate(FINISHES)}
_PIECE = 2**20
_LEVEL = 1  # bodies live for two steps: higher levels cost more time than they save memory


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Limits of what is decoded: bytes after decompression, rollouts in a group."""

    max_bytes: int = 256 * 2**20
    max_rollouts: int = 4096


class CorruptBody(ValueError):
    """A body that cannot be read; the message gives the reason."""


def encode_group(group: RolloutGroup) -> bytes:
    """Return the group's body; raises ValueError for more rollouts than ``DecodeLimits`` allows."""
    rollouts = group.rollouts
    if len(rollouts) > DecodeLimits().max_rollouts:
        raise ValueError(f"group {group.id}: {len(rollouts)} rollouts, at most {DecodeLimits().max_rollouts}")
    row = [
        list(group.id),
        group.stage,
        group.data_source,
        group.prompt_tokens.astype("<i4", copy=False).tobytes(),
        _ints([len(rollout.tokens) for rollout in rollouts]),
        _to_planes(np.concatenate([rollout.tokens for rollout in rollouts]), "<i4"),
        _to_planes(np.concatenate([rollout.logprobs for rollout in rollouts]), "<f4"),
        _ints([len(rollout.spans) for rollout in rollouts]),
        _ints([[*span.version, span.start, span.end] for rollout in rollouts for span in rollout.spans]),
        _ints([len(rollout.forced) for rollout in rollouts]),
        _ints([pair for rollout in rollouts for pair in rollout.forced]),
        bytes(_FINISH_INDEX[rollout.finish] for rollout in rollouts),
        np.array([rollout.reward for rollout in rollouts], dtype="<f8").tobytes(),
        bytes(_VERDICT_INDEX[rollout.verdict] for rollout in rollouts),
        [rollout.detail for rollout in rollouts],
    ]
    raw: bytes = msgpack.packb(row)
    payload = zstandard.ZstdCompressor(level=_LEVEL).compress(raw)
    head = _CHECKED.pack(_MAGIC, SCHEMA, 0, len(raw))
    return head + struct.pack("<I", zlib.crc32(payload, zlib.crc32(head))) + payload


def decode_group(body: bytes | memoryview, limits: DecodeLimits = DecodeLimits()) -> RolloutGroup:
    """Decode a body written by ``encode_group``; raises CorruptBody for any other bytes."""
    raw = _open(memoryview(body), limits)
    try:
        row = msgpack.unpackb(raw, max_array_len=limits.max_rollouts, max_map_len=0, max_ext_len=0)
        if not isinstance(row, list) or len(row) != len(_FIELDS):
            raise ValueError(f"expected {len(_FIELDS)} fields")
        return _build(dict(zip(_FIELDS, row, strict=True)))
    except (
        ValueError,
        TypeError,
        IndexError,
        OverflowError,
        RecursionError,
        msgpack.UnpackException,
    ) as error:
        raise CorruptBody(f"content: {error}") from error


def _open(body: memoryview, limits: DecodeLimits) -> bytes:
    if len(body) < _HEADER.size:
        _corrupt(f"{len(body)} bytes are fewer than a header")
    magic, schema, _, raw_length, checksum = _HEADER.unpack_from(body)
    if magic != _MAGIC:
        _corrupt("not a group")
    if schema != SCHEMA:
        _corrupt(f"schema version {schema}, this program reads {SCHEMA}")
    if max(raw_length, len(body)) > limits.max_bytes:
        _corrupt(f"{max(raw_length, len(body))} bytes, at most {limits.max_bytes}")
    payload = body[_HEADER.size :]
    if zlib.crc32(payload, zlib.crc32(body[: _CHECKED.size])) != checksum:
        _corrupt("checksum does not match: truncated or changed")
    return _inflate(payload, raw_length)


def _inflate(payload: memoryview, length: int) -> bytes:
    pieces, have = [], 0
    try:
        reader = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(payload)
        while piece := reader.read(min(_PIECE, length - have + 1)):
            pieces.append(piece)
            have += len(piece)
            if have > length:
                _corrupt(f"more than the {length} bytes it claims")
    except (zstandard.ZstdError, MemoryError) as error:
        raise CorruptBody(f"compression: {error}") from error
    if have != length:
        _corrupt(f"{have} bytes instead of {length}")
    return b"".join(pieces)


def _build(row: dict[str, Any]) -> RolloutGroup:
    lengths = _read_ints(row["lengths"])
    tokens, logprobs = _from_planes(row["tokens"], "<i4"), _from_planes(row["logprobs"], "<f4")
    finishes, verdicts, details = row["finishes"], row["verdicts"], row["details"]
    rewards = np.frombuffer(row["rewards"], dtype="<f8")
    spans = _ragged(_read_ints(row["spans"]).reshape(-1, 4), _read_ints(row["span_counts"]), len(lengths))
    forced = _ragged(_read_ints(row["forced"]).reshape(-1, 2), _read_ints(row["forced_counts"]), len(lengths))
    sizes = {len(finishes), len(verdicts), len(details), len(rewards), len(lengths)}
    if len(sizes) != 1 or (lengths < 0).any() or int(lengths.sum()) != len(tokens):
        raise ValueError(f"lengths disagree: {sizes}, {int(lengths.sum())} of {len(tokens)} tokens")
    ends = np.cumsum(lengths)
    rollouts = tuple(
        Rollout(
            tokens=tokens[end - length : end],
            logprobs=logprobs[end - length : end],
            spans=tuple(VersionSpan(PolicyVersion(*map(int, s[:2])), int(s[2]), int(s[3])) for s in spans[i]),
            finish=FINISHES[finishes[i]],
            reward=float(rewards[i]),
            verdict=VERDICTS[verdicts[i]],
            detail=_text(details[i]),
            forced=tuple((int(a), int(b)) for a, b in forced[i]),
        )
        for i, (length, end) in enumerate(zip(lengths, ends, strict=True))
    )
    prompt = np.frombuffer(row["prompt"], dtype="<i4").astype(np.int32, copy=False)
    return RolloutGroup(
        _group_id(row["id"]), _number(row["stage"]), _text(row["data_source"]), prompt, rollouts
    )


def _ints(values: Sequence[Any]) -> bytes:
    return np.array(values, dtype="<i8").tobytes()


def _read_ints(data: bytes) -> NDArray[np.int64]:
    return np.frombuffer(data, dtype="<i8")


def _to_planes(values: NDArray[Any], dtype: str) -> bytes:
    """Return the 4 byte planes of [N] 4-byte values, one after the other."""
    return np.ascontiguousarray(values.astype(dtype, copy=False).view(np.uint8).reshape(-1, 4).T).tobytes()


def _from_planes(data: bytes, dtype: str) -> NDArray[Any]:
    planes = np.frombuffer(data, dtype=np.uint8).reshape(4, -1)
    return np.ascontiguousarray(planes.T).view(dtype).reshape(-1)


def _ragged(rows: NDArray[np.int64], counts: NDArray[np.int64], n: int) -> list[NDArray[np.int64]]:
    if len(counts) != n or (counts < 0).any() or int(counts.sum()) != len(rows):
        raise ValueError("counts of spans or forced ranges disagree")
    return np.split(rows, np.cumsum(counts)[:-1])


def _number(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"expected a number, got {type(value).__name__}")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise ValueError(f"expected a text, got {type(value).__name__}")
    return value


def _group_id(value: Any) -> GroupId:
    return GroupId(*(_number(part) for part in value))


def _corrupt(reason: str) -> NoReturn:
    raise CorruptBody(reason)


def encode_summary(summary: GroupSummary) -> bytes:
    """Return a summary as msgpack, for the index (a few hundred bytes)."""
    *before, verdicts, finishes, sums, oldest, newest = summary
    codes = bytes(map(_VERDICT_INDEX.__getitem__, verdicts)), bytes(map(_FINISH_INDEX.__getitem__, finishes))
    packed: bytes = msgpack.packb((*before, *codes, sums, oldest, newest))
    return packed


def decode_summary(data: bytes) -> GroupSummary:
    """Decode what ``encode_summary`` wrote; raises CorruptBody."""
    try:
        row = msgpack.unpackb(
            data, use_list=False, max_array_len=DecodeLimits().max_rollouts, max_map_len=0, max_ext_len=0
        )
        group, stage, source, prompt, lengths, forced, rewards, verdicts, finishes, sums, oldest, newest = row
        _all_numbers((*group, stage, prompt, *lengths, *forced, *oldest, *newest))
        return GroupSummary(
            GroupId(*group),
            stage,
            _text(source),
            prompt,
            lengths,
            forced,
            tuple(map(float, rewards)),
            tuple(map(VERDICTS.__getitem__, verdicts)),
            tuple(map(FINISHES.__getitem__, finishes)),
            tuple(map(float, sums)),
            PolicyVersion(*oldest),
            PolicyVersion(*newest),
        )
    except (ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
        raise CorruptBody(f"summary: {error}") from error


def _all_numbers(values: tuple[object, ...]) -> None:
    if {*map(type, values)} != {int}:
        raise ValueError("expected whole numbers")
