"""Packed tests: only a text comes out of a pickle, and nothing in it is run."""

from __future__ import annotations

import base64
import pickle
import zlib
from pathlib import Path

import pytest

from buffer.prompts import packed_tests
from buffer.prompts.packed_tests import unpack_text
from buffer.prompts.row import BadRow


def pack(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("text", ["[]", "é\n" * 300, ""])
def test_a_text_comes_back(protocol: int, text: str) -> None:
    assert unpack_text(pack(pickle.dumps(text, protocol))) == text


class Hostile:
    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.made,)  # type: ignore[return-value]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_hostile_pickle_is_refused_and_not_run(protocol: int, tmp_path: Path) -> None:
    content = pickle.dumps(Hostile(tmp_path / "made"), protocol)
    with pytest.raises(BadRow, match="more than one text, which is not run"):
        unpack_text(pack(content))
    assert not (tmp_path / "made").exists()
    pickle.loads(content)  # noqa: S301 - shows that the row is hostile
    assert (tmp_path / "made").exists()


def test_a_hostile_pickle_after_a_text_is_refused(tmp_path: Path) -> None:
    content = pickle.dumps("[]")[:-1] + pickle.dumps(Hostile(tmp_path / "made"))
    with pytest.raises(BadRow, match="more than one text"):
        unpack_text(pack(content))


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        ("no base64!", "neither JSON nor zlib in base64"),
        (base64.b64encode(b"no zlib").decode(), "neither JSON nor zlib in base64"),
        (pack(pickle.dumps("[]" * 99))[:-20], "cut short"),
        (pack(b"no pickle"), "not a pickle|more than one text"),
        (pack(b""), "not a pickle"),
        (pack(pickle.dumps(["a", "b"])), "more than one text"),
        (pack(pickle.dumps(b"[]")), "more than one text"),
        (pack(pickle.dumps("long text" * 99)[:50]), "not a pickle"),
    ],
)
def test_anything_else_is_refused(packed: str, reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        unpack_text(packed)


def test_sizes_are_limited_before_anything_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_tests, "MOST_BYTES", 1 << 20)
    with pytest.raises(BadRow, match="larger than 1 MiB"):
        unpack_text(pack(pickle.dumps("x" * (2 << 20))))
    with pytest.raises(BadRow, match="larger than 1 MiB"):
        unpack_text("x" * (2 << 20))
