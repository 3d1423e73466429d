"""Logs never show a secret."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ops.logs import redact


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"password": "x"}, {"password": "***"}),
        ({"wandb_api_key": "x"}, {"wandb_api_key": "***"}),
        ({"url": "redis://user:hunter2@host:6379/0"}, {"url": "redis://user:***@host:6379/0"}),
        ({"tokens": 12, "event": "12 tokens"}, {"tokens": 12, "event": "12 tokens"}),
    ],
)
def test_secrets_are_blanked(event: dict[str, object], expected: dict[str, object]) -> None:
    assert redact(None, "info", dict(event)) == expected


def test_a_process_writes_json_with_its_role(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, structlog; from ops import logs\n"
        "logs.setup('driver', pathlib.Path(sys.argv[1]))\n"
        "structlog.get_logger('ops.x').info('started', port=3)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    record = json.loads((tmp_path / "driver.jsonl").read_text())
    assert record["event"] == "started"
    assert (record["role"], record["port"], record["level"]) == ("driver", 3, "info")
    assert "started" in result.stderr
