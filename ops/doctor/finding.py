"""Result of a check: pass, warn or fail, each with what was seen and, unless it passed, the fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

Status = Literal["pass", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. fix: what to type or change; empty if the check passed."""

    name: str
    status: Status
    seen: str
    fix: str = ""


Check = Callable[[], Iterator[Finding]]


def passed(name: str, seen: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(name, "pass", seen)


def warn(name: str, seen: str, fix: str) -> Finding:
    """Return a finding with which a run works, but worse or less safely than it could."""
    return Finding(name, "warn", seen, fix)


def fail(name: str, seen: str, fix: str) -> Finding:
    """Return a finding with which a run will not work."""
    return Finding(name, "fail", seen, fix)


def run_check(name: str, check: Check) -> list[Finding]:
    """Return the findings of one check; a check that raises is a finding itself."""
    try:
        return list(check())
    except Exception as error:  # noqa: BLE001 - a report with a hole is worth more than none
        return [warn(name, f"could not be checked: {type(error).__name__}: {error}", "look at it by hand")]
