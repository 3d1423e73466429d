"""Alert rules for Prometheus (``rules.yml``) and the runbook that each of them links to."""

from __future__ import annotations

from pathlib import Path

RULES = Path(__file__).parent / "rules.yml"
"""Recording and alerting rules."""
RUNBOOK = Path(__file__).parent / "runbook.md"
"""One section per alert: what it means, where to look, what to do."""
