"""The wire format: what goes in comes out, and nothing else is believed."""

from __future__ import annotations

import contextlib
import random
import struct
import tracemalloc
import zlib

import msgpack
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from buffer.records.codec import (
    CorruptBody,
    DecodeLimits,
    decode_group,
    decode_summary,
    encode_group,
    encode_summary,
)
from buffer.records.rollout import FINISHES, GroupId, Rollout, RolloutGroup, VersionSpan
from buffer.records.versions import PolicyVersion
from rewards.reward import VERDICTS

FLOATS = st.floats(-100, 0, width=32)


@st.composite
def rollouts(draw: st.DrawFn) -> Rollout:
    length = draw(st.integers(1, 30))
    cuts = sorted({0, length, *draw(st.lists(st.integers(0, length), max_size=3))})
    versions = sorted(draw(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), min_size=9, max_size=9)))
    start = draw(st.integers(0, length - 1))
    return Rollout(
        tokens=np.array(
            draw(st.lists(st.integers(0, 2**31 - 1), min_size=length, max_size=length)), np.int32
        ),
        logprobs=np.array(draw(st.lists(FLOATS, min_size=length, max_size=length)), np.float32),
        spans=tuple(
            VersionSpan(PolicyVersion(*version), a, b)
            for version, a, b in zip(versions, cuts, cuts[1:], strict=False)
        ),
        finish=draw(st.sampled_from(FINISHES)),
        reward=draw(st.floats(-1e6, 1e6)),
        verdict=draw(st.sampled_from(VERDICTS)),
        detail=draw(st.text(max_size=20)),
        forced=draw(st.sampled_from([(), ((start, length),)])),
    )


GROUPS = st.builds(
    RolloutGroup,
    id=st.builds(GroupId, *[st.integers(0, 2**40)] * 3),
    stage=st.integers(0, 9),
    data_source=st.text(max_size=10),
    prompt_tokens=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=9).map(
        lambda x: np.array(x, np.int32)
    ),
    rollouts=st.lists(rollouts(), min_size=1, max_size=4).map(tuple),
)


def content(group: RolloutGroup) -> list[object]:
    plain = [
        (r.tokens.tolist(), r.logprobs.tobytes(), r.spans, r.finish, r.reward, r.verdict, r.detail, r.forced)
        for r in group.rollouts
    ]
    return [group.id, group.stage, group.data_source, group.prompt_tokens.tolist(), plain]


def example(length: int = 40) -> RolloutGroup:
    rng = np.random.default_rng(0)
    version = PolicyVersion(1, 3)
    rollout = Rollout(
        tokens=rng.integers(0, 1000, length).astype(np.int32),
        logprobs=-rng.random(length).astype(np.float32),
        spans=(VersionSpan(version, 0, length),),
        finish="stop",
        reward=1.0,
        verdict="correct",
    )
    return RolloutGroup(GroupId(0, 5, 1), 0, "math", np.arange(1, 9, dtype=np.int32), (rollout, rollout))


def seal(raw: bytes, claimed: int | None = None, schema: int = 1) -> bytes:
    """A body with a valid checksum around any content."""
    payload = zstandard.ZstdCompressor().compress(raw)
    head = struct.pack("<4sHHQ", b"MGRG", schema, 0, len(raw) if claimed is None else claimed)
    return head + struct.pack("<I", zlib.crc32(payload, zlib.crc32(head))) + payload


def unseal(body: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(body[20:])


@given(GROUPS)
@settings(max_examples=60, deadline=None)
def test_a_group_comes_back_as_it_was(group: RolloutGroup) -> None:
    assert content(decode_group(encode_group(group))) == content(group)
    assert decode_summary(encode_summary(group.summary)) == group.summary


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    body = encode_group(example())
    for position in range(len(body) * 8):
        changed = bytearray(body)
        changed[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptBody):
            decode_group(bytes(changed))
    for length in range(len(body)):
        with pytest.raises(CorruptBody):
            decode_group(body[:length])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (seal(b"\x90", schema=2), "schema version 2"),
        (seal(b"\x90"), "expected 15 fields"),
        (seal(b"\xdd\xff\xff\xff\xff"), "content"),  # an array that claims 4 billion entries
        (seal(b"\xc6\xff\xff\xff\xff"), "content"),  # a buffer that claims 4 GiB
        (seal(b"\x91" * 5000), "content"),  # nested beyond any depth
        (seal(b"\x90", claimed=200 * 2**20), "instead of"),
        (seal(b"\x90", claimed=2**60), "at most"),
        (seal(bytes(2**20), claimed=64), "more than the 64 bytes"),
        (b"", "fewer than a header"),
        (bytes(100), "not a group"),
    ],
)
def test_lies_are_found_without_allocating_what_they_claim(body: bytes, reason: str) -> None:
    tracemalloc.start()
    with pytest.raises(CorruptBody, match=reason):
        decode_group(body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 2**20


def test_a_body_beyond_the_limit_is_refused() -> None:
    body = encode_group(example(10_000))
    with pytest.raises(CorruptBody, match="at most 1000"):
        decode_group(body, DecodeLimits(max_bytes=1000))


def mutated(rng: random.Random, body: bytes) -> bytes:
    """Random bytes, a mutated body, or mutated content under a valid checksum."""
    kind = rng.randrange(3)
    if kind == 0:
        return rng.randbytes(rng.randrange(200))
    changed = bytearray(body if kind == 1 else unseal(body))
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(changed))
        changed[place : place + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
    return bytes(changed) if kind == 1 else seal(bytes(changed))


def fuzz(times: int, seed: int) -> None:
    rng, body = random.Random(seed), encode_group(example())
    tracemalloc.start()
    before = 0
    for n in range(times):
        with contextlib.suppress(CorruptBody):
            decode_group(mutated(rng, body))
        if n == 1000:
            before = tracemalloc.get_traced_memory()[0]
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 2**20, f"grew by {grown} bytes (seed {seed})"


def test_mutated_bodies_never_crash_the_decoder() -> None:
    fuzz(10_000, seed=random.randrange(2**32))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_mutated_bodies_never_crash_the_decoder() -> None:
    fuzz(1_000_000, seed=random.randrange(2**32))


def test_a_summary_of_junk_is_corrupt() -> None:
    for junk in (b"", b"\x90", msgpack.packb([1] * 12), msgpack.packb("text")):
        with pytest.raises(CorruptBody):
            decode_summary(junk)
