"""Python values as JSON, on both sides of the sandbox. Standard library only: this text also runs inside.

Plain JSON stays as it is; what JSON lacks is tagged: {"$": "tuple", "v": [...]}. Only data is ever rebuilt.
"""

# This module's source is sent into the sandbox, which may run an older Python: no new syntax, no imports of ours.

import collections
import json

DEPTH = 200
SEQUENCES = {"tuple": tuple, "set": set, "frozenset": frozenset}


def encode(value, depth=0):  # type: ignore[no-untyped-def]
    """A JSON-able form of plain data; anything else becomes its type's name and equals nothing."""
    if depth > DEPTH:
        return {"$": "object", "v": "nested too deep"}
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    for base in (bool, int, float, str):
        if isinstance(value, base):
            return base.__new__(base, value) if base is not bool else value  # no subclass, no overridden ==
    if isinstance(value, (list, collections.deque, range)):
        return [encode(item, depth + 1) for item in list.__iter__(list(value))]
    for name, base in SEQUENCES.items():
        if isinstance(value, base):
            return {"$": name, "v": [encode(item, depth + 1) for item in base.__iter__(value)]}
    if isinstance(value, dict):
        if all(type(key) is str and key != "$" for key in dict.keys(value)):
            return {key: encode(item, depth + 1) for key, item in dict.items(value)}
        return {
            "$": "dict",
            "v": [[encode(k, depth + 1), encode(v, depth + 1)] for k, v in dict.items(value)],
        }
    if kind in (bytes, bytearray):
        return {"$": "bytes", "v": value.hex()}
    if kind is complex:
        return {"$": "complex", "v": [value.real, value.imag]}
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist(), depth + 1)
    return {"$": "object", "v": kind.__name__}


class Opaque:
    """Stands for a value that was not plain data; equal to nothing, itself included."""

    def __init__(self, name):  # type: ignore[no-untyped-def]
        self.name = name

    def __eq__(self, other):  # type: ignore[no-untyped-def]
        return False

    def __hash__(self):  # type: ignore[no-untyped-def]
        return id(self)

    def __repr__(self):  # type: ignore[no-untyped-def]
        return "<" + str(self.name)[:60] + ">"


def decode(data):  # type: ignore[no-untyped-def]
    """The value that ``encode`` was given. Raises ValueError or TypeError for what is not its output."""
    if isinstance(data, list):
        return [decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    if "$" not in data:
        return {key: decode(item) for key, item in data.items()}
    name, inner = data["$"], data.get("v")
    if name in SEQUENCES:
        return SEQUENCES[name](decode(item) for item in inner)
    if name == "dict":
        return {decode(key): decode(item) for key, item in inner}
    if name == "bytes":
        return bytes.fromhex(inner)
    if name == "complex":
        return complex(*inner)
    return Opaque(inner)


def dumps(value):  # type: ignore[no-untyped-def]
    """``encode`` as JSON text."""
    return json.dumps(encode(value))


def loads(text):  # type: ignore[no-untyped-def]
    """The inverse of dumps."""
    return decode(json.loads(text))
