"""What the doctor found, in short."""

from __future__ import annotations

from collections.abc import Iterator

from ops.doctor.finding import Finding, Status


def statuses(findings: Iterator[Finding]) -> dict[str, Status]:
    """Return the status of each check by its name."""
    return {finding.name: finding.status for finding in findings}
