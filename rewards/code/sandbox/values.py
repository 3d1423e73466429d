"""Python values as JSON, on both sides of the sandbox. Also runs inside. Standard library only.

Plain JSON stays as it is; other types are tagged: {"$": "tuple", "v": [...]}. Objects of the program's own
classes (a linked list, a tree) are written as a table of their attributes, so that they may be long, shared
or cyclic: {"$": "graph", "v": [value, [[class, {attribute: value}], ...]]}. Only data is rebuilt, and objects
only of classes that the receiving side names.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Mapping, Sequence
from typing import Any

DEPTH = 200
PLAIN: tuple[Any, ...] = (int, float, str)
OBJECTS = 100_000
"""Limit on objects of the program's classes in one value."""
OWN = ("__main__", "tests")
"""Modules of the classes of programs and tests."""
SEQUENCES: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def encode(value: Any, depth: int = 0, objects: Objects | None = None) -> Any:
    """Return a form of plain data that JSON can represent; other values become opaque and equal nothing.

    objects: collects objects of the program's own classes by identity; without it they are opaque.
    """
    if depth > DEPTH:
        return {"$": "object", "v": "nested too deep"}
    if value is None or isinstance(value, bool):
        return value
    for base in PLAIN:
        if isinstance(value, base):
            return base.__new__(base, value)  # no subclass, no overridden ==
    if isinstance(value, (list, collections.deque, range)):
        return [encode(item, depth + 1, objects) for item in list.__iter__(list(value))]
    if isinstance(value, dict):
        return _encode_dict(value, depth + 1, objects)
    for name, kind in SEQUENCES.items():
        if isinstance(value, kind):
            return {"$": name, "v": [encode(item, depth + 1, objects) for item in kind.__iter__(value)]}  # type: ignore[attr-defined]
    if isinstance(value, (bytes, bytearray)):
        return {"$": "bytes", "v": value.hex()}
    if isinstance(value, complex):
        return {"$": "complex", "v": [value.real, value.imag]}
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist(), depth + 1, objects)
    if objects is not None and _is_own(value):
        return objects.reference(value)
    return {"$": "object", "v": type(value).__name__}


class Objects(list):  # type: ignore[type-arg]
    """Objects of the program's own classes, each once, in the order of their first occurrence."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[int, int] = {}

    def reference(self, value: Any) -> Any:
        place = self._places.setdefault(id(value), len(self))
        if place == len(self):
            if place >= OBJECTS:
                return {"$": "object", "v": "too many objects"}
            self.append(value)
        return {"$": "ref", "v": place}


def _is_own(value: Any) -> bool:
    return type(value).__module__ in OWN and isinstance(getattr(value, "__dict__", None), dict)


def _encode_dict(value: dict[Any, Any], depth: int, objects: Objects | None) -> Any:
    if all(type(key) is str and key != "$" for key in dict.keys(value)):
        return {key: encode(item, depth, objects) for key, item in dict.items(value)}
    pairs = [[encode(part, depth, objects) for part in pair] for pair in dict.items(value)]
    return {"$": "dict", "v": pairs}


class Opaque:
    """A value that was not plain data; equal to nothing, itself included."""

    def __init__(self, name: object) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<{str(self.name)[:60]}>"


def decode(data: Any, objects: Sequence[Any] = ()) -> Any:
    """Return the value that ``encode`` was given; objects: those that it refers to.

    Raises ValueError, TypeError, KeyError or IndexError for data that is not its output.
    """
    if isinstance(data, list):
        return [decode(item, objects) for item in data]
    if not isinstance(data, dict):
        return data
    if "$" not in data:
        return {key: decode(item, objects) for key, item in data.items()}
    name, inner = data["$"], data.get("v")
    if name == "dict":
        return {decode(key, objects): decode(item, objects) for key, item in inner or ()}
    if name == "ref":
        return objects[int(inner or 0)]
    if name == "bytes":
        return bytes.fromhex(str(inner))
    if name == "complex":
        real, imaginary = inner or (0, 0)
        return complex(real, imaginary)
    if name in SEQUENCES:
        return SEQUENCES[name](decode(item, objects) for item in inner or ())
    return Opaque(inner)


def dumps(value: Any) -> str:
    """Return the encoded value as JSON text, with the objects that it refers to."""
    objects = Objects()
    data = encode(value, 0, objects)
    table = [[type(one).__name__, _encode_dict(vars(one), 1, objects)] for one in objects]  # grows meanwhile
    return json.dumps({"$": "graph", "v": [data, table]} if table else data)


def loads(text: str | bytes, classes: Mapping[str, Any] | None = None) -> Any:
    """Return the value that ``dumps`` was given.

    classes: those whose objects are rebuilt, by name; objects of others are Opaque.
    """
    data = json.loads(text)
    if not (isinstance(data, dict) and data.get("$") == "graph"):
        return decode(data)
    data, table = data["v"]
    objects = [_blank(name, classes or {}) for name, _ in table]
    for one, (_, attributes) in zip(objects, table):  # noqa: B905 - older interpreters
        if not isinstance(one, Opaque):
            vars(one).update(decode(attributes, objects))
    return decode(data, objects)


def _blank(name: str, classes: Mapping[str, Any]) -> Any:
    kind = classes.get(name)
    return object.__new__(kind) if isinstance(kind, type) and kind.__module__ in OWN else Opaque(name)
