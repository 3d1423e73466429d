"""Functions that run in forks of a process that has imported everything."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any


def fork(run: Callable[..., None], *arguments: Any) -> int:
    """Run in a child process; return its id. Its exit status is 1 if ``run`` raises."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        run(*arguments)
        status = 0
    except BaseException:  # noqa: BLE001 - a forked child must not return
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def exit_status(child: int) -> int:
    """Wait for a child; return its exit status, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
