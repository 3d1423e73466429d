"""What the probe finds out about this machine."""

from __future__ import annotations

from rewards.code.sandbox import probe
from rewards.config import CodeConfig


def test_enforcement_reports_what_works(code_config: CodeConfig) -> None:
    rows = {row.name: row for row in probe.enforcement(code_config)}
    assert rows["isolation"].works
    assert all(row.works or row.fix for row in rows.values())
