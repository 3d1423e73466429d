"""Alert rules for Prometheus, their unit tests for promtool, and the runbook that each rule links to."""

from __future__ import annotations

from pathlib import Path

RULES = Path(__file__).parent / "rules.yml"
"""Recording and alerting rules."""
RUNBOOK = Path(__file__).parent / "runbook.md"
"""What each alert means, what to look at, what to do; one heading per alert."""
