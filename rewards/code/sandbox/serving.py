"""Test code and the program it calls. Runs inside the sandbox. Standard library only.

The two are processes in two sandboxes, so the program cannot reach an assertion: calls and their results
pass as data.
"""

from __future__ import annotations

import _socket
import builtins
import contextlib
import json
import os
import re
import struct
import sys
import types
from collections.abc import Callable
from typing import Any

from rewards.code.sandbox.nodes import ListNode, TreeNode
from rewards.code.sandbox.values import dumps, loads

PRELUDE = """
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from typing import *
"""
"""Names that function-call problems rely on without importing them."""


def send(link: _socket.socket, header: dict[str, Any], body: bytes = b"") -> None:
    """Write one frame: the lengths of header and body (4 bytes each), header as JSON, body."""
    text = json.dumps(header).encode()
    link.sendall(struct.pack(">II", len(text), len(body)) + text + body)


def receive(link: _socket.socket) -> tuple[dict[str, Any], bytes]:
    """Read one frame; end the process when the other side is gone."""
    header, body = struct.unpack(">II", _exactly(link, 8))
    return json.loads(_exactly(link, header)), _exactly(link, body)


def _exactly(link: _socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = link.recv(min(size - len(data), 1 << 20))
        if not part:
            os._exit(0)
        data += part
    return bytes(data)


def load(source: str, *, prelude: bool) -> dict[str, Any]:
    """Run a program as the main module and return its namespace: what the program itself defines.

    The prelude's names are found where built-in functions are, so that the program's own come first.
    """
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    if prelude:
        granted = {**vars(builtins), "ListNode": ListNode, "TreeNode": TreeNode}
        exec(PRELUDE, granted)
        module.__dict__["__builtins__"] = granted
    sys.argv = ["program.py"]
    exec(compile(source, "program.py", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def target(names: dict[str, Any], expression: str) -> Callable[..., Any]:
    """Return what to call: a function, a method of ``class Solution``, or any expression ("Solution().f")."""
    if expression in names:
        found = names[expression]
    elif "Solution" in names and expression.isidentifier():
        found = getattr(names["Solution"](), expression)
    else:
        found = eval(expression, names)  # noqa: S307 - inside the program's own sandbox
    return found  # type: ignore[no-any-return]


def serve_program(link: _socket.socket, source: str) -> None:
    """Answer calls until the other side is gone."""
    names = load(source, prelude=True)
    known = [name for name, value in names.items() if callable(value) and not name.startswith("__")]
    send(link, {"names": known})
    targets: dict[str, Callable[..., Any]] = {}
    while True:
        header, body = receive(link)
        _answer(link, header["call"], body, names, targets)


def _answer(
    link: _socket.socket,
    name: str,
    body: bytes,
    names: dict[str, Any],
    targets: dict[str, Callable[..., Any]],
) -> None:
    try:
        if name not in targets:
            targets[name] = target(names, name)
        args, kwargs = loads(body, names)
        value = targets[name](*args, **kwargs)
        send(link, {"returned": True}, dumps([value, args]).encode())
    except Exception as error:  # noqa: BLE001 - goes back to the test that called
        send(link, {"raised": type(error).__name__}, str(error)[:300].encode(errors="replace"))


def serve_tests(link: _socket.socket, source: str, known: list[str], entry: str, prefix: str) -> None:
    """Run test code in which the program's functions are remote ones; ``candidate`` stands for ``entry``.

    What the tests rely on (built-in functions, and what comes with the problem in ``prefix``) is not the
    program's: one that defines ``abs`` or ``is_same_list`` does not affect the assertions.
    """
    names: dict[str, Any] = {"__name__": "tests"}
    exec(PRELUDE, names)
    with contextlib.suppress(SyntaxError):  # a signature that the program continues
        exec(compile(prefix, "prefix.py", "exec", dont_inherit=True), names)
    classes = {name: value for name, value in names.items() if isinstance(value, type)}
    names.update({name: _remote(link, name, classes) for name in _remotes(source, known, entry, names)})
    if "Solution" in known and "Solution" not in classes:
        names["Solution"] = lambda: _Methods(link, classes)
    if entry:
        names["candidate"] = _remote(link, entry, classes)
    try:
        exec(compile(source, "tests.py", "exec", dont_inherit=True), names)
        send(link, {"done": True})
    except BaseException as error:  # noqa: BLE001 - a failing test is a result
        why = {"failed": type(error).__name__, "line": _line(error.__traceback__), "why": str(error)[:300]}
        send(link, why)


def _remotes(source: str, known: list[str], entry: str, own: dict[str, Any]) -> list[str]:
    """Return the program's functions that the tests call.

    These are its own names, or, if the tests call none of them, the ones it redefines (a problem may ask for
    a function called ``sum`` or ``gcd``).
    """
    called = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", source)) & set(known)
    new = [name for name in called if name == entry or not (name in own or hasattr(builtins, name))]
    return new or ([] if entry else list(called))


class _Methods:
    """The ``Solution()`` of test code: its methods are the program's."""

    def __init__(self, link: _socket.socket, classes: dict[str, Any]) -> None:
        self._link, self._classes = link, classes

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return _remote(self._link, f"Solution().{name}", self._classes)


def _line(trace: types.TracebackType | None) -> int:
    """Return the innermost line of the tests in an error's traceback."""
    line = 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "tests.py":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _remote(link: _socket.socket, name: str, classes: dict[str, Any]) -> Callable[..., Any]:
    """Return a function that calls the program's; changes of its arguments in place are copied back."""

    def remote(*args: Any, **kwargs: Any) -> Any:
        send(link, {"call": name}, dumps([args, kwargs]).encode())
        header, body = receive(link)
        if "raised" in header:
            kind = getattr(builtins, str(header["raised"]), None)
            is_error = isinstance(kind, type) and issubclass(kind, Exception)
            is_error = is_error and kind is not StopIteration  # it would end an all(map(...)) early
            raise (kind if is_error else RuntimeError)(body.decode(errors="replace"))  # type: ignore[misc]
        value, changed = loads(body, classes)
        for before, after in zip(args, changed):  # noqa: B905 - older interpreters
            if type(before) is list and type(after) is list:
                before[:] = after
            elif type(before) is type(after) and hasattr(before, "__dict__"):
                vars(before).update(vars(after))
        return value

    return remote
