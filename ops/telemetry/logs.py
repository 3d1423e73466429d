"""Logs: a line for each event, readable in the terminal and as JSON in the run's folder, without secrets.

JSON lines have run, role, slot, step and version as far as their process knows them (``buffer.log_context``).
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import structlog

from buffer.log_context import LOG_CONTEXT, bind_log_context

FOLDER_VARIABLE = "MAGICRL_LOG_FOLDER"
"""Environment variable from which worker processes take the folder of the run's logs."""

_SECRET_KEY = re.compile(r"password|token|secret|api_?key", re.IGNORECASE)
_COUNTS = {"tokens", "prompt_tokens", "response_tokens", "tokens_per_second", "token_budget"}
_SECRET_TEXT = (
    re.compile(r"(\w+://[^:/@\s]*:)[^/\s]+(?=@)"),  # password in a URL
    re.compile(r"(\bBearer\s+)[\w.~+/=-]+", re.IGNORECASE),
    re.compile(r"(\b(?:password|passwd|secret|api_?key)\b['\"]?\s*[=:]\s*['\"]?)[^\s,'\"}]+", re.IGNORECASE),
)


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Blank values whose key names a secret, and passwords and bearer tokens within texts, at any depth."""
    for key, value in event.items():
        event[key] = _redacted(key, value)
    return event


def _redacted(key: str, value: Any) -> Any:
    if isinstance(value, str):
        return "***" if _SECRET_KEY.search(key) and key not in _COUNTS else _without_secrets(value)
    if isinstance(value, Mapping):
        return {name: _redacted(str(name), inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(key, inner) for inner in value]
    return value


def _without_secrets(text: str) -> str:
    for pattern in _SECRET_TEXT:
        text = pattern.sub(r"\1***", text)
    return text


def _add_context(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the process's context; the event's own values win."""
    return {**LOG_CONTEXT, **event}


def setup(role: str, folder: Path | None = None, terminal: bool = True) -> None:
    """Log this process's events to ``<folder>/<role>.jsonl`` and, if ``terminal``, to the terminal.

    folder: the folder of logs within the run's own folder.
    """
    bind_log_context(role=role)
    if folder is not None:
        bind_log_context(run=folder.parent.name)
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers.clear()
    root.setLevel(logging.INFO)
    if terminal:
        root.addHandler(_terminal_handler(shared))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        root.addHandler(_file_handler(folder / f"{role}.jsonl", shared))


def setup_worker() -> None:
    """Log a Ray worker's events to the run's log folder only; Ray calls this in every worker process."""
    folder = os.environ.get(FOLDER_VARIABLE)
    setup(f"worker-{os.getpid()}", Path(folder) if folder else None, terminal=False)


def _terminal_handler(shared: list[Any]) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_ours_or_error)
    console = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    handler.setFormatter(_formatter(shared, _without_logger, console))
    return handler


def _file_handler(path: Path, shared: list[Any]) -> logging.Handler:
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(_formatter(shared, _add_context, structlog.processors.JSONRenderer(default=str)))
    return handler


def _formatter(shared: list[Any], *processors: Any) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *processors],
    )


_ROOMS = ("buffer", "rewards", "actors", "learner", "ops")


def _ours_or_error(record: logging.LogRecord) -> bool:
    """Return whether the terminal shows it: our own events, and errors of other libraries."""
    return record.name.split(".")[0] in _ROOMS or record.levelno >= logging.ERROR


def _without_logger(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event.pop("logger", None)
    return event
