"""One isolated interpreter per response: starts it, sends it tests, and ends whatever it started.

Its replies are data from a hostile source: framed, capped, never unpickled or evaluated.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from rewards.code.sandbox.cgroup import Cgroup, descendants, is_running, memory_of, sweep
from rewards.code.sandbox.container import (
    SandboxUnavailable,
    command,
    interpreter,
    package_folders,
    system_call_filter,
)
from rewards.config import CodeConfig

START_SECONDS = 20.0
"""Time limit for starting the interpreter inside (35 ms on a free core)."""
SLACK_SECONDS = 8.0
"""Time by which the limit outside is longer than the wall limit inside."""
WATCH_SECONDS = 0.05
"""Period of polling the memory where no cgroup limits it."""
HEADER_BYTES = 1 << 20
STACK_BYTES = 120 << 20
"""Stack of a main thread, for which the kernel reserves 128 MiB. Set after the interpreter's start, so that
other threads keep their default of 8 MiB."""


class SandboxBroken(RuntimeError):
    """The interpreter inside ended, hung or sent a malformed reply, because of the program or its limits."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one test. status: as from waitpid (0: a clean exit), None: out of time. output: stdout,
    or the encoded result of a call. over: the output exceeds its limit. error: the end of its stderr."""

    status: int | None
    output: bytes
    over: bool = False
    error: str = ""


INSIDE = ("values", "nodes", "serving", "fork_server")
"""The modules that run inside, in the order of their imports."""


@cache
def _source() -> str:
    """Return the modules that run inside as one text, without their imports of each other."""
    folder = Path(__file__).parent
    text = "\n".join((folder / f"{name}.py").read_text() for name in INSIDE)
    lines = [line for line in text.splitlines() if not line.startswith(("from rewards.", "from __future__"))]
    return "\n".join(["from __future__ import annotations", *lines])


class Sandbox:
    """A warm, isolated interpreter for the tests of one response. Use as a context manager."""

    def __init__(self, config: CodeConfig, *, bare: bool = False) -> None:
        """Start the interpreter. bare: without isolation. Raises SandboxUnavailable if it does not start."""
        self.config = config
        self._cgroup = None if bare else _cgroup(config)
        self._home = tempfile.TemporaryDirectory(prefix="magicrl-bare-") if bare else None
        self._link, theirs = socket.socketpair()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the sandbox
        try:
            with theirs:  # while this end is open here, a sandbox that ended looks as if it were starting
                self._process = self._start(theirs, bare)
            self.receive(START_SECONDS)
        except SandboxUnavailable:
            self.close()
            raise
        except (SandboxBroken, OSError) as error:
            self.close()
            self._errors.seek(0)
            output = self._errors.read()[-500:].decode(errors="replace").strip()
            raise SandboxUnavailable(f"the sandbox does not start: {output or error}") from error

    def _start(self, theirs: socket.socket, bare: bool) -> subprocess.Popen[bytes]:
        python = interpreter(self.config.python)
        argv = [python, "-I", "-X", "utf8", "-X", "int_max_str_digits=0", "-c", _source()]
        with tempfile.TemporaryFile() as rules:
            rules.write(system_call_filter())
            rules.seek(0)
            line = [*argv, "--bare", *package_folders(python)]
            if not bare:
                line = command(self.config, argv, rules.fileno())
            return subprocess.Popen(
                line,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=[rules.fileno()],
                cwd=self._home.name if self._home else "/",
                preexec_fn=self._cgroup.enter if self._cgroup else None,
                start_new_session=True,
            )

    def load(self, source: str) -> None:
        """Send the program that later tests run."""
        self.send({"op": "program"}, source.encode(errors="replace"))

    def run(self, stdin: bytes) -> Outcome:
        """Run the program as a script."""
        return self._test({"op": "stdin"}, stdin)

    def call(self, name: str, arguments: bytes) -> Outcome:
        """Call a function of the program. arguments, and the output: as values.dumps writes them."""
        return self._test({"op": "call", "name": name}, arguments)

    def serve(self, request: dict[str, Any]) -> None:
        """Let the program (or test code) take over the connection, to exchange frames with it."""
        self.send(self._limited({"op": "serve", **request}, self.config.total_seconds))

    def _test(self, request: dict[str, Any], body: bytes) -> Outcome:
        self.send(self._limited(request, self.config.wall_seconds), body)
        header, output = self.receive(self.config.wall_seconds + SLACK_SECONDS)
        if not header.get("cleaned", False):
            raise SandboxBroken("processes of the program would not end")
        status = header.get("status")
        if status is not None and not isinstance(status, int):
            raise SandboxBroken("malformed report")
        over = len(output) >= self.config.output_bytes or bool(header.get("over"))
        return Outcome(status, output, over, str(header.get("error", ""))[:400])

    def _limited(self, request: dict[str, Any], wall: float) -> dict[str, Any]:
        config = self.config
        limits = {
            "CPU": config.cpu_seconds if request["op"] != "serve" else int(config.total_seconds) + 1,
            "AS": config.address_bytes,
            "FSIZE": config.output_bytes,
            "NPROC": config.processes,
            "NOFILE": 256,
            "STACK": STACK_BYTES,
            "CORE": 0,
        }
        return {**request, "wall": wall, "limits": limits}

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Write one frame. Raises SandboxBroken if it is not read in time."""
        text = json.dumps(header).encode()
        self._link.settimeout(self.config.wall_seconds + SLACK_SECONDS)
        try:
            self._link.sendall(struct.pack(">II", len(text), len(body)) + text + body)
        except OSError as error:
            raise SandboxBroken("the sandbox was lost") from error

    def receive(self, seconds: float) -> tuple[dict[str, Any], bytes]:
        """Read one frame. Raises SandboxBroken past the time limit or over the memory limit."""
        deadline = time.monotonic() + seconds
        sizes = struct.unpack(">II", self._exactly(8, deadline))
        if sizes[0] > HEADER_BYTES or sizes[1] > self.config.output_bytes + 1:
            raise SandboxBroken("malformed report")
        try:
            header = json.loads(self._exactly(sizes[0], deadline))
        except ValueError as error:
            raise SandboxBroken("malformed report") from error
        if not isinstance(header, dict):
            raise SandboxBroken("malformed report")
        return header, self._exactly(sizes[1], deadline)

    def _exactly(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise SandboxBroken("out of time")
            if not select.select([self._link], [], [], left if self._cgroup else min(left, WATCH_SECONDS))[0]:
                self.check_memory()
                continue
            part = self._link.recv(min(size - len(data), 1 << 20))
            if not part:
                raise SandboxBroken("the sandbox was lost")
            data += part
        return bytes(data)

    def check_memory(self) -> None:
        """Raise SandboxBroken if the processes inside exceed the memory limit and no cgroup limits them."""
        limit = self.config.memory_bytes
        if self._cgroup is None and memory_of(descendants(self._process.pid), limit) > limit:
            raise SandboxBroken("out of memory")

    def close(self) -> None:
        """End everything inside. Raises SandboxUnavailable if a process survives its SIGKILL."""
        self._link.close()
        process = getattr(self, "_process", None)
        if process is not None:
            inside = descendants(process.pid)
            _end(process)
            for pid in inside:
                _end_stray(pid)
        if self._home is not None:
            self._home.cleanup()
        if self._cgroup is not None:
            emptied = self._cgroup.wait_empty(SLACK_SECONDS)
            self._cgroup.remove()
            if not emptied:
                raise SandboxUnavailable("processes of a program survive in the sandbox's cgroup")

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    process.wait(SLACK_SECONDS)


def _end_stray(pid: int) -> None:
    """Wait for the end of a process; the kernel ends a process namespace with its first process."""
    deadline = time.monotonic() + SLACK_SECONDS
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.001)


def _cgroup(config: CodeConfig) -> Cgroup | None:
    try:
        _sweep_once()
        return Cgroup(config)
    except OSError:
        return None


_sweep_once = cache(sweep)
