"""Tries to escape from the sandbox before any program may, and reports what this machine can enforce."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass

from rewards.code.sandbox.cgroup import Cgroup
from rewards.code.sandbox.container import SandboxUnavailable
from rewards.code.sandbox.sandbox import Sandbox, SandboxBroken
from rewards.config import CodeConfig

ESCAPES = r"""
import ctypes, json, os, socket, subprocess
found = []
def attempt(name, work):
    try:
        if work(): found.append(name)
    except BaseException: pass
def writes(path):
    with open(path, "w") as file: file.write("x")
    return True
for path in TARGETS:
    attempt("wrote " + path, lambda: writes(path))
libc = ctypes.CDLL(None, use_errno=True)
attempt("remounted /usr", lambda: libc.mount(None, b"/usr", None, 32 | 4096, None) == 0)
attempt("made a user namespace", lambda: libc.unshare(0x10000000) == 0)
attempt("reached a network", lambda: socket.create_connection(("1.1.1.1", 53), 0.2))
attempt("reached the host's loopback", lambda: socket.create_connection(("127.0.0.1", PORT), 0.2))
attempt("opened a vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
attempt("made memory that no limit sees", lambda: os.memfd_create("x") >= 0)
attempt("sees the host's processes", lambda: len([p for p in os.listdir("/proc") if p.isdigit()]) > 8)
attempt("has the host's user", lambda: os.getuid() == 0)
attempt("sees a secret", lambda: "MAGICRL_PROBE_SECRET" in os.environ)
attempt("reads " + SECRET, lambda: open(SECRET).read())
def forks():
    count = 0
    try:
        while count < LIMIT + 200:
            if os.fork() == 0:
                import time; time.sleep(30); os._exit(0)
            count += 1
    except OSError: return False
    return True
attempt("forks without limit", forks)
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Enforcement:
    """One protection on this machine. fix: how to get it, where it is missing."""

    name: str
    works: bool
    detail: str
    fix: str = ""


_tight: set[CodeConfig] = set()
"""Configurations whose sandbox passed the probe. A failure is not cached: it may be transient."""


def refusal(config: CodeConfig) -> str:
    """Return why programs are not run here; "" if they are."""
    if config.unsafe or config in _tight:
        return ""
    try:
        found = escapes(config)
    except SandboxUnavailable as missing:
        return f"programs are not run: {missing}"
    if found:
        return f"programs are not run, the sandbox leaks: {', '.join(found)}"
    _tight.add(config)
    return ""


def escapes(config: CodeConfig) -> list[str]:
    """Return what a program that tries to escape achieved. Raises SandboxUnavailable without a sandbox."""
    import socket

    with (
        tempfile.NamedTemporaryFile("w", prefix="magicrl-probe-") as secret,
        socket.create_server(("127.0.0.1", 0)) as open_port,
    ):
        os.chmod(secret.name, 0o644)
        secret.write("secret")
        secret.flush()
        folders = ("", "/etc", "/usr", "/var", "/dev")
        targets = [*(f"{folder}/magicrl-probe" for folder in folders), "/proc/sys/kernel/core_pattern"]
        known = {
            "TARGETS": targets,
            "PORT": open_port.getsockname()[1],
            "SECRET": secret.name,
            "LIMIT": config.processes,
        }
        source = "\n".join(f"{name} = {value!r}" for name, value in known.items()) + ESCAPES
        with Sandbox(config) as sandbox:
            sandbox.load(source)
            try:
                outcome = sandbox.run(b"")
                return [str(name) for name in json.loads(outcome.output)]
            except (SandboxBroken, ValueError) as error:
                raise SandboxUnavailable(f"the escape probe did not finish: {error}") from error


def enforcement(config: CodeConfig) -> list[Enforcement]:
    """Return each protection, whether it works here, and how to get it where it does not."""
    rows = [_program("bwrap", "bubblewrap"), _program("setpriv", "util-linux")]
    try:
        found = escapes(config.model_copy(update={"unsafe": False}))
        rows.append(
            Enforcement(
                "isolation", not found, ", ".join(found) or "no escape succeeded", "see the leaks named"
            )
        )
    except SandboxUnavailable as missing:
        rows.append(Enforcement("isolation", False, str(missing), "allow user namespaces in this container"))
    try:
        group = Cgroup(config)
        group.remove()
        rows.append(Enforcement("memory of all processes", True, f"cgroup {group.folders[0][2].parent}"))
    except OSError as error:
        rows.append(Enforcement("memory of all processes", False, f"watched every 50 ms instead: {error}",
                                "delegate the memory and pids cgroup controllers"))  # fmt: skip
    return rows


def _program(name: str, package: str) -> Enforcement:
    path = shutil.which(name)
    needed = name != "setpriv" or os.geteuid() == 0
    return Enforcement(name, path is not None or not needed, path or "not found", f"install {package}")
