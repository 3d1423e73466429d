"""Child processes that do not outlive their parent."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def die_with_parent() -> Callable[[], None]:
    """Return a ``preexec_fn`` after which the child gets SIGTERM when its parent ends, even by SIGKILL.

    Linux sends the signal when the parent *thread* ends, so that thread must live as long as the child
    should. Elsewhere the function does nothing.
    """
    libc = ctypes.CDLL(None)  # loaded here: after the fork only the call itself is safe

    def arrange() -> None:
        if hasattr(libc, "prctl"):
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    return arrange
