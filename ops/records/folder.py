"""A run's folder: its files, its lock, and whether there is something to resume."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import IO, Any, Literal

import structlog
import yaml

from ops.config.schema import Config, ConfigError

log = structlog.get_logger(__name__)

Resume = Literal["never", "require", "auto"]
"""``never``: start from scratch; ``require``: continue the newest checkpoint; ``auto``: whichever fits."""


class RunFolder:
    """``runs/<name>/``: config.yaml, steps.jsonl, evaluations.jsonl, summary.json, checkpoints/, logs/."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.steps = path / "steps.jsonl"
        self.evaluations = path / "evaluations.jsonl"
        self.summary = path / "summary.json"
        self.checkpoints = path / "checkpoints"
        self.logs = path / "logs"
        self.redis = path / "redis"
        self._lock: IO[str] | None = None

    @property
    def model(self) -> Path:
        """Model folder that the run's configuration names; it may no longer exist."""
        return Path(yaml.safe_load(self.config.read_text(encoding="utf-8"))["model"]["path"])

    @property
    def used(self) -> bool:
        """Whether there are steps or checkpoints of a run here."""
        return self.steps.exists() or any(self.checkpoints.glob("*/*"))

    def open(self, config: Config, resume: Resume) -> None:
        """Create the folder, take its lock and write the resolved config.

        Raises ConfigError where the folder is in use, contains another run, or has nothing to resume.
        """
        if resume == "never" and self.used:
            raise ConfigError(
                f"{self.path} holds a run already: continue it with --resume, or name another: run.name=NAME"
            )
        if resume == "require" and not self.checkpoints.is_dir():
            raise ConfigError(
                f"{self.path}: no checkpoint to resume; start afresh without --resume (or --resume=auto)"
            )
        self.logs.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        text = yaml.safe_dump(self._recorded(config).model_dump(mode="json"), sort_keys=False)
        write_atomically(self.config, text)

    def _recorded(self, config: Config) -> Config:
        """Return the config with access to Redis from any working directory, and no password in it."""
        redis = config.buffer.redis
        files = {name: getattr(redis, name) for name in ("password_file", "ca_file")}
        if redis.password is not None:
            files["password_file"] = self._write_password(redis.password.get_secret_value())
        changes = {name: path.absolute() for name, path in files.items() if path is not None}
        redis = redis.model_copy(update=changes | {"password": None})
        return config.model_copy(update={"buffer": config.buffer.model_copy(update={"redis": redis})})

    def _write_password(self, password: str) -> Path:
        """Write the password to a file that only its owner can read."""
        self.redis.mkdir(exist_ok=True)
        path = self.redis / "password"
        path.touch(mode=0o600)
        path.write_text(password + "\n", encoding="utf-8")
        return path

    def set_aside(self) -> Path | None:
        """Rename the folder of an ended run to make room; return its new path, None if there was no run.

        Raises ConfigError if that run is still running.
        """
        if not self.used:
            return None
        self._take_lock()
        self.close()
        taken = (self.path.with_name(f"{self.path.name}-{number}") for number in count(1))
        target = next(path for path in taken if not path.exists())
        return self.path.rename(target)

    def _take_lock(self) -> None:
        lock = (self.path / "lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise ConfigError(f"{self.path} is in use by process {holder}; stop that run first") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def write_atomically(path: Path, text: str) -> None:
    """Write the whole file or nothing."""
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


class JsonlWriter:
    """Appends to a JSON-lines file; lines that a full disk refuses are written with the next one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unwritten: list[Mapping[str, Any]] = []

    def append(self, record: Mapping[str, Any]) -> None:
        """Append one line, and those that were refused before. Never raises."""
        self._unwritten.append(record)
        try:
            append_line(self._path, *self._unwritten)
        except OSError as error:
            lines = len(self._unwritten)
            log.error("lines kept for later", file=str(self._path), lines=lines, reason=str(error))
        else:
            self._unwritten.clear()


def append_line(path: Path, *records: Mapping[str, Any]) -> None:
    """Append JSON lines in one write, so that readers never see half of one.

    A torn line of an earlier writer is ended first, so that it does not swallow the new one.
    """
    text = "".join(json.dumps(record) + "\n" for record in records).encode()
    with path.open("a+b") as file:
        if file.tell() and not _ends_a_line(file):
            text = b"\n" + text
        file.write(text)


def _ends_a_line(file: IO[bytes]) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a JSON-lines file; torn lines, left by killed writers, are skipped."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        yield record
