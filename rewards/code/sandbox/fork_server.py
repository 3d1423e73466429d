"""A warm interpreter that forks one child per test. Runs inside the sandbox. Standard library only.

Its source is sent in after those of the modules it imports, and may run on an older Python. It gets programs
and inputs, never an expected output, so there is nothing to steal; its reports are taken as data from a
hostile source.
"""

from __future__ import annotations

import _socket  # importing socket takes longer than all else here
import atexit
import bisect  # noqa: F401 - imported once here instead of in each test
import functools  # noqa: F401
import gc
import heapq  # noqa: F401
import io
import itertools  # noqa: F401
import math  # noqa: F401
import operator  # noqa: F401
import os
import re  # noqa: F401
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rewards.code.sandbox.nodes import build_arguments, flatten, returns_node
from rewards.code.sandbox.serving import load, receive, send, serve_program, serve_tests, target
from rewards.code.sandbox.values import dumps, loads

CONTAINED = "--bare" not in sys.argv
sys.path += [folder for folder in sys.argv[1:] if folder.startswith("/")]
SCRATCH = ("/tmp", "/dev/shm") if CONTAINED else (os.getcwd(),)
CLEAN_SECONDS = 6.0


def main() -> None:
    """Serve requests until the other side closes the socket, which is the standard input."""
    link = _socket.socket(fileno=os.dup(0))
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    if CONTAINED and os.getpid() > 9:
        sys.exit("not in a process namespace of its own")  # _clean() would end the host's processes
    gc.collect()
    gc.freeze()
    send(link, {"ready": True})
    source = ""
    while True:
        request, body = receive(link)
        if request["op"] == "program":
            source = body.decode()
        else:
            send(link, *_test(link, request, body, source))


def _test(
    link: _socket.socket, request: dict[str, Any], body: bytes, source: str
) -> tuple[dict[str, Any], bytes]:
    """Run one test in a child; return a report on it, and its output."""
    stdin = body if request["op"] == "stdin" else b""
    fds = [_scratch_file(stdin), _scratch_file(), _scratch_file(), _scratch_file()]
    pid = os.fork()
    if pid == 0:
        _child(link, request, body, source, fds)
    status = _wait(pid, request["wall"])
    if status is None:
        os.kill(pid, signal.SIGKILL)
    cleaned = _clean() if CONTAINED else _end_group(pid)
    report, output = _report(request, fds)
    for fd in fds:
        os.close(fd)
    return {**report, "status": status, "cleaned": cleaned}, output


def _report(request: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], bytes]:
    _, stdout, stderr, result = fds
    most = request["limits"]["FSIZE"]
    tail = max(os.fstat(stderr).st_size - 400, 0)
    report = {
        "over": os.fstat(stdout).st_size >= most,
        "error": os.pread(stderr, 400, tail).decode(errors="replace"),
    }
    return report, os.pread(result if request["op"] == "call" else stdout, most, 0)


def _scratch_file(content: bytes = b"") -> int:
    """Return a new file without a name."""
    try:
        fd = os.open(SCRATCH[0], os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError:  # a file system without unnamed files
        name = f"{SCRATCH[0]}/.{os.getpid()}-{time.monotonic_ns()}"
        fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        os.unlink(name)
    _write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _write(fd: int, content: bytes, write: Callable[[int, Any], int] = os.write) -> None:
    view = memoryview(content)
    while view:
        view = view[write(fd, view) :]


def _child(link: _socket.socket, request: dict[str, Any], body: bytes, source: str, fds: list[int]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.setsid()
    os.chdir(SCRATCH[0])
    _standard_streams(fds)
    _limit(request["limits"])
    if request["op"] == "serve":
        if request["role"] == "program":
            _finish(lambda: serve_program(link, source))
        _finish(lambda: serve_tests(link, source, **request["tests"]))
    link.close()
    if request["op"] == "call":
        _finish(lambda: _call(request["name"], body, source, fds[3]))
    _finish(lambda: load(source, prelude=False))


def _standard_streams(fds: list[int]) -> None:
    for source, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(fds[source], source)
        raw = open(source, "wb" if source else "rb", closefd=False)  # noqa: SIM115 - lives as long as the process
        stream = io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _limit(limits: dict[str, int]) -> None:
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _call(name: str, body: bytes, source: str, result: int) -> None:
    """Report the function's value and, where it gives none, its first argument, changed in place."""
    write = os.write
    names = load(source, prelude=True)
    function = target(names, name)
    args = build_arguments(function, loads(body), names)
    value = function(*args)
    in_place = value is None and args and getattr(function, "__annotations__", {}).get("return") is None
    if value is None and returns_node(function):
        value = []
    _write(result, dumps([flatten(value), flatten(args[0]) if in_place else None]).encode(), write)


def _finish(work: Callable[[], object]) -> None:
    """Run ``work`` and end the process as an interpreter does: join threads, run exit handlers, flush."""
    status = 0
    try:
        work()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # noqa: BLE001 - whatever the program raised is its exit status
        status = 1
        import traceback

        traceback.print_exc(limit=-3)
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001
        status = status or 120
    os._exit(status & 0xFF)


def _wait(pid: int, seconds: float) -> int | None:
    """Return the exit status as from waitpid; None past the time limit."""
    deadline = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        signal.sigtimedwait([signal.SIGCHLD], left)


def _clean() -> bool:
    """End everything the test started and empty its scratch space; return whether all processes ended."""
    deadline = time.monotonic() + CLEAN_SECONDS
    while _kill_others():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)  # until killed processes are gone
    for folder in SCRATCH:
        _empty(folder)
    return True


def _kill_others() -> bool:
    """Kill all but the namespace's first process and this one; return whether there were any."""
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        return False
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return True
    return True


def _empty(folder: str) -> None:
    """Delete the contents of a folder, as far as permissions allow."""
    for path, folders, files in os.walk(folder, topdown=False):
        for name in files + folders:
            inner = os.path.join(path, name)
            try:
                os.rmdir(inner) if name in folders and not os.path.islink(inner) else os.unlink(inner)
            except OSError:
                continue


def _end_group(pid: int) -> bool:
    """End the test's process group; all that is possible without a sandbox."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return True
    return True


if __name__ == "__main__":
    main()
