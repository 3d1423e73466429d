"""LiveCodeBench's private tests: a text in a pickle in zlib in base64, read without running the pickle."""

from __future__ import annotations

import base64
import pickletools
import zlib
from itertools import islice

from buffer.prompts.row import BadRow

MOST_BYTES = 512 << 20
"""Limit on the size of a row's tests, packed and unpacked, in bytes."""

_TEXTS = {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE"}
_AROUND = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"}


def unpack_text(packed: str) -> str:
    """Return the packed text. Raises BadRow for anything else, above all for a pickle that could run code."""
    if len(packed) > MOST_BYTES:
        raise BadRow(f"private tests are larger than {MOST_BYTES >> 20} MiB")
    stream = zlib.decompressobj()
    try:
        pickled = stream.decompress(base64.b64decode(packed, validate=True), MOST_BYTES)
    except (ValueError, zlib.error):
        raise BadRow("private tests are neither JSON nor zlib in base64") from None
    if not stream.eof:
        raise BadRow(f"private tests are cut short or larger than {MOST_BYTES >> 20} MiB")
    return _only_text(pickled)


def _only_text(pickled: bytes) -> str:
    """Return the text in a pickle that has nothing else; its opcodes are listed, never executed."""
    try:
        opcodes = [(code.name, value) for code, value, _ in islice(pickletools.genops(pickled), 6)]
    except ValueError:
        raise BadRow("private tests are not a pickle") from None
    names = [name for name, _ in opcodes]
    texts = [value for name, value in opcodes if name in _TEXTS]
    if len(texts) != 1 or names[-1] != "STOP" or not set(names) <= _TEXTS | _AROUND:
        raise BadRow("private tests are a pickle of more than one text, which is not run")
    return str(texts[0])
