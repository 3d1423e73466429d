"""Logs: the context of each line, the two formats, and no secrets."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ops.telemetry.logs import redact


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"password": "x"}, {"password": "***"}),
        ({"wandb_api_key": "x"}, {"wandb_api_key": "***"}),
        ({"url": "redis://user:hunter2@host:6379/0"}, {"url": "redis://user:***@host:6379/0"}),
        (
            {"event": "no redis at rediss://:a@b@host/0, again"},
            {"event": "no redis at rediss://:***@host/0, again"},
        ),
        ({"event": "http://host:80/a@b"}, {"event": "http://host:80/a@b"}),
        ({"event": "sent Authorization: Bearer abc.d-e"}, {"event": "sent Authorization: Bearer ***"}),
        ({"event": "CONFIG password=hunter2, port=3"}, {"event": "CONFIG password=***, port=3"}),
        ({"error": "{'api_key': 'hunter2', 'x': 1}"}, {"error": "{'api_key': '***', 'x': 1}"}),
        (
            {"config": {"redis": {"password": "x", "port": 1}, "urls": ["redis://:y@h"]}},
            {"config": {"redis": {"password": "***", "port": 1}, "urls": ["redis://:***@h"]}},
        ),
        ({"tokens": 12, "event": "12 tokens: 3 more"}, {"tokens": 12, "event": "12 tokens: 3 more"}),
        ({"prompt_tokens": "3", "token_budget": 4}, {"prompt_tokens": "3", "token_budget": 4}),
    ],
)
def test_secrets_are_blanked(event: dict[str, object], expected: dict[str, object]) -> None:
    assert redact(None, "info", dict(event)) == expected


PROCESS = """
import logging, pathlib, sys, threading
import structlog
from buffer.log_context import bind_version
from buffer.records.versions import PolicyVersion
from ops.telemetry import logs
logs.setup("driver", pathlib.Path(sys.argv[1]))
bind_version(PolicyVersion(2, 7))
log = structlog.get_logger("ops.x")
def work():
    log.info("started", port=3)
    log.info("stage begins", step=9)
    try:
        raise OSError("redis://:hunter2@host is away")
    except OSError:
        log.exception("lost")
    logging.getLogger("vllm.engine").info("chatter")
    logging.getLogger("vllm.engine").error("engine at http://:hunter2@host is dead")
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, dict[str, object]], str]:
    """Return what a process wrote into its file, by event, and on its terminal."""
    folder = tmp_path_factory.mktemp("my") / "my_run/logs"
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, str(folder)], capture_output=True, text=True, timeout=60, check=True
    )
    lines = map(json.loads, (folder / "driver.jsonl").read_text().splitlines())
    return {str(line["event"]): line for line in lines}, done.stderr


def test_each_line_has_the_context_of_its_process(written: tuple[dict[str, dict[str, object]], str]) -> None:
    records, _ = written
    for event in ("started", "lost", "chatter"):
        line = records[event]
        assert (line["run"], line["role"], line["version"], line["step"]) == ("my_run", "driver", "2.7", 7)
    assert records["started"]["port"] == 3
    assert records["stage begins"]["step"] == 9, "an event's own step wins over the process's"


def test_the_terminal_shows_our_events_and_errors_of_others_without_context(
    written: tuple[dict[str, dict[str, object]], str],
) -> None:
    _, terminal = written
    assert "started" in terminal
    assert "my_run" not in terminal
    assert "chatter" not in terminal
    assert "is dead" in terminal


def test_no_output_shows_a_secret(written: tuple[dict[str, dict[str, object]], str]) -> None:
    records, terminal = written
    assert "OSError: redis://:***@host is away" in str(records["lost"]["exception"])
    assert "hunter2" not in terminal + json.dumps(records)
