"""Runs inside the sandbox: a warm interpreter that forks one child per test. Standard library only.

Speaks frames on a socket that it finds as its standard input: 4 bytes length of a JSON header, 4 bytes length of a
body, header, body. It is told programs and inputs, never an expected output, so nothing in here is worth stealing; what
it reports is taken as data from a hostile source.
"""

# This module's source is sent into the sandbox behind that of values.py, whose names it uses.

import atexit
import bisect  # noqa: F401 - imported once here, so that no program waits for it
import collections  # noqa: F401
import decimal  # noqa: F401
import fractions  # noqa: F401
import functools  # noqa: F401
import gc
import heapq  # noqa: F401
import io
import itertools  # noqa: F401
import json
import math  # noqa: F401
import operator  # noqa: F401
import os
import random  # noqa: F401
import re  # noqa: F401
import resource
import signal
import socket
import string  # noqa: F401
import struct
import sys
import threading
import time
import traceback
import types
import typing  # noqa: F401

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
CONTAINED = "--bare" not in sys.argv
SCRATCH = ("/tmp", "/dev/shm") if CONTAINED else (os.getcwd(),)


def _send(link, header, body=b""):  # type: ignore[no-untyped-def]
    text = json.dumps(header).encode()
    link.sendall(struct.pack(">II", len(text), len(body)) + text + body)


def _receive(link):  # type: ignore[no-untyped-def]
    sizes = struct.unpack(">II", _exactly(link, 8))
    return json.loads(_exactly(link, sizes[0])), _exactly(link, sizes[1])


def _exactly(link, size):  # type: ignore[no-untyped-def]
    data = bytearray()
    while len(data) < size:
        part = link.recv(min(size - len(data), 1 << 20))
        if not part:
            os._exit(0)  # the other side is gone
        data += part
    return bytes(data)


def _scratch_file(content=b""):  # type: ignore[no-untyped-def]
    try:
        fd = os.open(SCRATCH[0], os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError:  # a file system without unnamed files
        name = "%s/.%d-%d" % (SCRATCH[0], os.getpid(), time.monotonic_ns())
        fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        os.unlink(name)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _limit(limits):  # type: ignore[no-untyped-def]
    for name, most in limits.items():
        kind = getattr(resource, "RLIMIT_" + name)
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most + (name == "CPU")))


def _standard_streams(stdin, stdout, stderr):  # type: ignore[no-untyped-def]
    for source, target in ((stdin, 0), (stdout, 1), (stderr, 2)):
        os.dup2(source, target)
    for name, fd, mode in (("stdin", 0, "rb"), ("stdout", 1, "wb"), ("stderr", 2, "wb")):
        stream = io.TextIOWrapper(open(fd, mode, closefd=False), encoding="utf-8", errors="surrogateescape")
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)


def _load(source, prelude):  # type: ignore[no-untyped-def]
    """The namespace of a program that was run as the main module."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    if prelude:
        exec(PRELUDE, module.__dict__)
    sys.argv = ["program.py"]
    exec(compile(source, "program.py", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def _target(names, expression):  # type: ignore[no-untyped-def]
    """What to call: a function, a method of ``class Solution``, or any expression ("Solution().f")."""
    if expression in names:
        return names[expression]
    if "Solution" in names and expression.isidentifier():
        return getattr(names["Solution"](), expression)
    return eval(expression, names)  # noqa: S307 - the program's own sandbox


def _finish(work):  # type: ignore[no-untyped-def]
    """Run ``work`` and end the process as an interpreter would: threads joined, exit handlers run, output flushed."""
    status = 0
    try:
        work()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # noqa: BLE001 - whatever the program raised is its exit status
        status = 1
        traceback.print_exc(limit=-3)
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001
        status = status or 120
    os._exit(status & 0xFF)


def _child(request, body, source, result, streams, kept):  # type: ignore[no-untyped-def]
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.setsid()
    os.chdir(SCRATCH[0])
    _standard_streams(*streams)
    _limit(request["limits"])
    if request["op"] == "stdin":
        _finish(lambda: _load(source, False))
    if request["op"] == "call":
        _finish(lambda: _call(request, body, source, result))
    _finish(lambda: _serve(request, source, kept))


def _call(request, body, source, result):  # type: ignore[no-untyped-def]
    args = loads(body)
    write, text = os.write, dumps(_target(_load(source, True), request["name"])(*args)).encode()
    while text:
        text = text[write(result, text) :]


def _serve(request, source, link):  # type: ignore[no-untyped-def]
    """One of the two sides of tests that are code: the program (answers calls) or the tests (make them)."""
    if request["role"] == "program":
        names = _load(source, True)
        known = [name for name, value in names.items() if callable(value) and not name.startswith("__")]
        _send(link, {"names": known})
        targets = {}
        while True:
            header, body = _receive(link)
            _answer(link, header, body, names, targets)
    names = {"__name__": "tests"}
    exec(PRELUDE, names)
    for name in request["names"]:
        names[name] = _remote(link, name)
    if request["entry"]:
        names["candidate"] = _remote(link, request["entry"])
    try:
        exec(compile(source, "tests.py", "exec", dont_inherit=True), names)
        _send(link, {"done": True})
    except BaseException as error:  # noqa: BLE001 - a failing test is a result
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == "tests.py"
        ]
        _send(
            link, {"failed": type(error).__name__, "line": lines[-1] if lines else 0, "why": str(error)[:300]}
        )


def _answer(link, header, body, names, targets):  # type: ignore[no-untyped-def]
    name = header["call"]
    try:
        if name not in targets:
            targets[name] = _target(names, name)
        args, kwargs = loads(body)
        value = targets[name](*args, **kwargs)
        _send(link, {"returned": True}, dumps([value, args]).encode())
    except Exception as error:  # noqa: BLE001 - goes back to the test that called
        _send(link, {"raised": type(error).__name__}, str(error)[:300].encode(errors="replace"))


def _remote(link, name):  # type: ignore[no-untyped-def]
    """A function of the program, callable from the tests: data out, data back, changed arguments included."""

    def remote(*args, **kwargs):  # type: ignore[no-untyped-def]
        _send(link, {"call": name}, dumps([args, kwargs]).encode())
        header, body = _receive(link)
        if "raised" in header:
            kind = getattr(__import__("builtins"), str(header["raised"]), RuntimeError)
            is_error = isinstance(kind, type) and issubclass(kind, Exception)
            raise (kind if is_error else RuntimeError)(body.decode(errors="replace"))
        value, changed = loads(body)
        for before, after in zip(args, changed):
            if type(before) is list and type(after) is list:
                before[:] = after
        return value

    return remote


def _wait(pid, seconds):  # type: ignore[no-untyped-def]
    """Exit status as waitpid gives it; None when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        signal.sigtimedwait([signal.SIGCHLD], left)


def _clean():  # type: ignore[no-untyped-def]
    """End everything that the test started and empty its scratch space; False if something would not go."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            os.kill(-1, signal.SIGKILL)  # all but pid 1 and this process
        except (ProcessLookupError, PermissionError):
            break
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.001)
    else:
        return False
    for folder in SCRATCH:
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
            else:
                os.unlink(entry.path)
    return True


def _remove(folder):  # type: ignore[no-untyped-def]
    """Delete a folder as far as its permissions allow."""
    for path, folders, files in os.walk(folder, topdown=False):
        for name in files + folders:
            inner = os.path.join(path, name)
            try:
                os.rmdir(inner) if name in folders and not os.path.islink(inner) else os.unlink(inner)
            except OSError:
                continue
    try:
        os.rmdir(folder)
    except OSError:
        return


def _end_group(pid):  # type: ignore[no-untyped-def]
    """Without a sandbox: end at least what stayed in the test's process group."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    return True


def _tail(fd, most):  # type: ignore[no-untyped-def]
    size = os.fstat(fd).st_size
    return os.pread(fd, most, max(size - most, 0))


def _report(request, fds, status, began):  # type: ignore[no-untyped-def]
    stdout, stderr, result = fds
    source = result if request["op"] == "call" else stdout
    over = os.fstat(stdout).st_size >= request["limits"]["FSIZE"]
    header = {
        "status": status,
        "seconds": time.monotonic() - began,
        "over": over,
        "error": _tail(stderr, 400).decode(errors="replace"),
    }
    return header, os.pread(source, request["limits"]["FSIZE"], 0)


def zygote():  # type: ignore[no-untyped-def]
    """Serve requests until the other side closes the socket."""
    link = socket.socket(fileno=os.dup(0))
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    if CONTAINED and os.getpid() > 9:
        sys.exit("not in a process namespace of its own")  # _clean() would end the host's processes
    source = ""
    gc.collect()
    gc.freeze()
    _send(link, {"ready": os.getpid()})
    while True:
        request, body = _receive(link)
        if request["op"] == "program":
            source = body.decode()
            continue
        stdin = body if request["op"] == "stdin" else b""
        fds = [_scratch_file(stdin), _scratch_file(), _scratch_file(), _scratch_file()]
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            kept = link if request["op"] == "serve" else link.close()
            _child(request, body, source, fds[3], fds[:3], kept)
        status = _wait(pid, request["wall"])
        if status is None:
            os.kill(pid, signal.SIGKILL)
        cleaned = _clean() if CONTAINED else _end_group(pid)
        header, output = _report(request, fds[1:], status, began)
        for fd in fds:
            os.close(fd)
        _send(link, dict(header, cleaned=cleaned), output)


if __name__ == "__main__":
    zygote()
