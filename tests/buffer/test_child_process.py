"""A child started with die_with_parent ends when its parent is killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

PARENT = """
import subprocess, sys, time
from buffer.child_process import die_with_parent
arrange = die_with_parent() if sys.argv[1] == "bound" else None
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], preexec_fn=arrange)
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone signals the death of a parent")
@pytest.mark.parametrize(("mode", "seconds", "ended"), [("bound", 30, True), ("free", 1, False)])
def test_a_child_outlives_a_killed_parent_only_if_it_is_not_bound(
    mode: str, seconds: int, ended: bool
) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, mode], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    handle = os.pidfd_open(child)
    parent.kill()
    parent.wait(30)
    try:
        assert bool(select.select([handle], [], [], seconds)[0]) == ended
    finally:
        if not ended:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
