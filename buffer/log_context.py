"""What every log line of this process carries: run, role, slot, and the policy version it works on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from buffer.records.versions import PolicyVersion

_context: dict[str, Any] = {}
LOG_CONTEXT: Mapping[str, Any] = MappingProxyType(_context)
"""For the log's processors. It belongs to the process, not to a thread or task (as structlog's contextvars
do): most lines come from threads."""


def bind_log_context(**fields: Any) -> None:
    """Add ``fields`` to every later log line."""
    _context.update(fields)


def bind_version(version: PolicyVersion) -> None:
    """Set the version that this process trains or samples with from now on."""
    bind_log_context(step=version.step, version=str(version))
