"""What every log line of this process says of itself: run, role, slot, and the policy version it is at."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from buffer.records.versions import PolicyVersion

_facts: dict[str, Any] = {}
FACTS: Mapping[str, Any] = MappingProxyType(_facts)
"""For the log's processors. Of the process, not of a thread or task: most lines come from threads."""


def know(**facts: Any) -> None:
    """These hold from now on."""
    _facts.update(facts)


def at(version: PolicyVersion) -> None:
    """The version that this process trains, or samples with, from now on."""
    know(step=version.step, version=str(version))
