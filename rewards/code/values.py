"""Python values as JSON, on both sides of the sandbox. Standard library only: this text also runs inside.

Plain JSON stays as it is; what JSON lacks is tagged: {"$": "tuple", "v": [...]}. Only data is ever rebuilt.
"""

from __future__ import annotations

import collections
import json
from typing import Any

DEPTH = 200
PLAIN: tuple[Any, ...] = (int, float, str)
SEQUENCES: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def encode(value: Any, depth: int = 0) -> Any:
    """A JSON-able form of plain data; anything else becomes its type's name and equals nothing."""
    if depth > DEPTH:
        return {"$": "object", "v": "nested too deep"}
    if value is None or isinstance(value, bool):
        return value
    for base in PLAIN:
        if isinstance(value, base):
            return base.__new__(base, value)  # no subclass, no overridden ==
    if isinstance(value, (list, collections.deque, range)):
        return [encode(item, depth + 1) for item in list.__iter__(list(value))]
    if isinstance(value, dict):
        return _encode_dict(value, depth + 1)
    for name, kind in SEQUENCES.items():
        if isinstance(value, kind):
            return {"$": name, "v": [encode(item, depth + 1) for item in kind.__iter__(value)]}  # type: ignore[attr-defined]
    if isinstance(value, (bytes, bytearray)):
        return {"$": "bytes", "v": value.hex()}
    if isinstance(value, complex):
        return {"$": "complex", "v": [value.real, value.imag]}
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist(), depth + 1)
    return {"$": "object", "v": type(value).__name__}


def _encode_dict(value: dict[Any, Any], depth: int) -> Any:
    if all(type(key) is str and key != "$" for key in dict.keys(value)):
        return {key: encode(item, depth) for key, item in dict.items(value)}
    return {"$": "dict", "v": [[encode(key, depth), encode(item, depth)] for key, item in dict.items(value)]}


class Opaque:
    """Stands for a value that was not plain data; equal to nothing, itself included."""

    def __init__(self, name: object) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<{str(self.name)[:60]}>"


def decode(data: Any) -> Any:
    """The value that ``encode`` was given. Raises ValueError, TypeError or KeyError for what is not its
    output."""
    if isinstance(data, list):
        return [decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    if "$" not in data:
        return {key: decode(item) for key, item in data.items()}
    name, inner = data["$"], data.get("v")
    if name == "dict":
        return {decode(key): decode(item) for key, item in inner or ()}
    if name == "bytes":
        return bytes.fromhex(str(inner))
    if name == "complex":
        real, imaginary = inner or (0, 0)
        return complex(real, imaginary)
    if name in SEQUENCES:
        return SEQUENCES[name](decode(item) for item in inner or ())
    return Opaque(inner)


def dumps(value: Any) -> str:
    """``encode`` as JSON text."""
    return json.dumps(encode(value))


def loads(text: str | bytes) -> Any:
    """The inverse of dumps."""
    return decode(json.loads(text))
