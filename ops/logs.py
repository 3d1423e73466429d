"""Logs: one line an event; for people in the terminal, as JSON in the run's folder, secrets redacted."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import structlog

FOLDER_VARIABLE = "MAGICRL_LOG_FOLDER"
"""Environment variable that tells worker processes where the run's log files are."""

_SECRET_KEY = re.compile(r"password|token|secret|api_?key", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(\w+://[^:/@\s]*:)[^@\s]+@")
_COUNTS = {"tokens", "prompt_tokens", "response_tokens", "tokens_per_second", "token_budget"}


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Blank values whose key names a secret, and passwords inside URLs."""
    for key, value in event.items():
        if isinstance(value, str):
            hidden = _SECRET_KEY.search(key) and key not in _COUNTS
            event[key] = "***" if hidden else _URL_PASSWORD.sub(r"\1***@", value)
    return event


def setup(role: str, folder: Path | None = None, terminal: bool = True) -> None:
    """Log this process's events to ``<folder>/<role>.jsonl`` and, for the driver, to the terminal."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        redact,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(role=role)
    root = logging.getLogger()
    root.handlers.clear()
    root.setLevel(logging.INFO)
    if terminal:
        root.addHandler(_terminal_handler(shared))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        root.addHandler(_file_handler(folder / f"{role}.jsonl", shared))


def setup_worker() -> None:
    """Ray's hook for every worker process: events to the run's log folder, none to the terminal."""
    folder = os.environ.get(FOLDER_VARIABLE)
    setup(f"worker-{os.getpid()}", Path(folder) if folder else None, terminal=False)


def _terminal_handler(shared: list[Any]) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_ours_or_warning)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _drop("logger", "role"),
                structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0),
            ],
        )
    )
    return handler


def _file_handler(path: Path, shared: list[Any]) -> logging.Handler:
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(default=str),
            ],
        )
    )
    return handler


_ROOMS = ("buffer", "rewards", "actors", "learner", "ops")


def _ours_or_warning(record: logging.LogRecord) -> bool:
    """The terminal shows our own events; other libraries' only when something went wrong."""
    return record.name.split(".")[0] in _ROOMS or record.levelno >= logging.ERROR


def _drop(*keys: str) -> Any:
    def drop(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        for key in keys:
            event.pop(key, None)
        return event

    return drop
