"""Less memory or smaller files than this process would like to have."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

M_MMAP_THRESHOLD = -3
"""Of glibc's malloc.h: from this size on an allocation is a mapping of its own, and gone when it is freed."""


@contextmanager
def limited(what: int, limit: int) -> Iterator[None]:
    """Let the kernel refuse this process more of ``what`` (resource.RLIMIT_...) within the block."""
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (soft, hard))


def address_space(spare: int | None) -> AbstractContextManager[None]:
    """Let malloc fail beyond ``spare`` bytes more than this process maps now; None: no limit."""
    return nullcontext() if spare is None else limited(resource.RLIMIT_AS, mapped_bytes() + spare)


def mapped_bytes() -> int:
    """Return the size of this process's address space."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def return_freed_memory() -> None:
    """Make malloc give large blocks back when they are freed, so that none is reused within a limit."""
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 18)
