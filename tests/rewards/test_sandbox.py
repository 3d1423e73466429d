"""Hostile programs gain nothing, and nothing of them stays."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from helpers.programs import SUM, score_program
from rewards.code.sandbox.cgroup import ROOT, descendants
from rewards.code.sandbox.sandbox import Sandbox, SandboxBroken
from rewards.config import CodeConfig

HOSTILE = {
    "reads its parent": """
import os
print(open(f"/proc/{os.getppid()}/environ").read())
""",
    "kills everything": """
import os, signal
os.kill(-1, signal.SIGKILL)
""",
    "stops its parent": """
import os, signal
os.kill(os.getppid(), signal.SIGSTOP)
print(8)
""",
    "forges a report": """
import os, struct
for fd in range(3, 30):
    for pid in (1, os.getppid()):
        try:
            out = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)
            os.write(out, struct.pack(">II", 2, 2) + b"{}8")
        except OSError: pass
""",
    "hides memory": """
x = []
while True:
    x.append(bytearray(1 << 20))
""",
    "hides memory in children": """
import os, time
for _ in range(20):
    if os.fork() == 0:
        x = bytearray(100 << 20)
        for i in range(0, len(x), 4096): x[i] = 1
        time.sleep(9)
time.sleep(9)
""",
    "hides memory in files": """
for n in range(100):
    for folder in ("/tmp", "/dev/shm", "/dev", "/"):
        try:
            with open(f"{folder}/{n}", "wb") as f: f.write(b"x" * (8 << 20))
        except OSError: pass
print(8)
""",
    "leaves a daemon": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
print(8)
""",
    "prints a deep list": """
x = []
for _ in range(100000): x = [x]
print(x)
""",
    "takes over its parent by ptrace": """
import ctypes
libc = ctypes.CDLL(None)
for pid in range(1, 20):
    libc.ptrace(16, pid, 0, 0)
    libc.ptrace(8, pid, 0, 0)
print(8)
""",
    "mounts and unshares": """
import ctypes, os
libc = ctypes.CDLL(None)
libc.unshare(0x10000000)
libc.mount(b"x", b"/tmp", b"tmpfs", 0, 0)
for uid in (0, 1000):
    try: os.setuid(uid)
    except OSError: pass
print(os.getuid() == 0)
""",
    "locks its folders and digs deep": """
import os
os.makedirs("a/b"); os.chmod("a/b", 0); os.chmod("a", 0)
for _ in range(2000):
    os.mkdir("d"); os.chdir("d")
""",
    "fills memory with files in memory": """
import os
fd = os.memfd_create("x")
for _ in range(100): os.write(fd, b"x" * (64 << 20))
""",
    "starts threads without end": """
import threading, time
while True: threading.Thread(target=time.sleep, args=(30,)).start()
""",
    "stops itself": """
import os, signal
os.kill(os.getpid(), signal.SIGSTOP)
""",
    "writes without end": """
while True: print("y" * 1000)
""",
}


@pytest.mark.parametrize("trick", HOSTILE)
def test_hostile_programs_gain_nothing_and_leave_nothing(code_config: CodeConfig, trick: str) -> None:
    others, began = set(descendants(os.getpid())), time.monotonic()
    score = score_program(code_config, HOSTILE[trick], {**SUM, "outputs": ["?\n", "?\n"]})
    assert score.value == 0.0
    assert score.verdict == "wrong", score
    assert set(descendants(os.getpid())) <= others
    assert time.monotonic() - began < 30


def _resident_bytes(pids: set[int]) -> int:
    pages = 0
    for pid in pids:
        with suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_bounded_over_all_processes(code_config: CodeConfig) -> None:
    """Twenty children of 100 MiB each never get near 2 GiB, with a cgroup or by polling."""
    others, peak = set(descendants(os.getpid())), 0
    with Sandbox(code_config) as sandbox, ThreadPoolExecutor(1) as thread:
        sandbox.load(HOSTILE["hides memory in children"])
        running = thread.submit(sandbox.run, b"")
        while not running.done():
            peak = max(peak, _resident_bytes(set(descendants(os.getpid())) - others))
        assert isinstance(running.exception(), SandboxBroken | None)
    assert 0 < peak < 3 * code_config.memory_bytes


def test_one_test_finds_nothing_of_the_one_before(code_config: CodeConfig) -> None:
    with Sandbox(code_config) as sandbox:
        sandbox.load(
            "import os\nprint(os.listdir('/tmp') + os.listdir('/dev/shm'))\n"
            "open('/tmp/x', 'w')\n"
            "os.makedirs('/dev/shm/a/b')"
        )
        assert [sandbox.run(b"").output for _ in range(2)] == [b"[]\n", b"[]\n"]


def test_no_cgroup_is_left_behind(code_config: CodeConfig) -> None:
    before = set(ROOT.glob("*/magicrl-*"))
    score_program(code_config, "print(8)")
    assert set(ROOT.glob(f"*/magicrl-{os.getpid()}-*")) <= before
