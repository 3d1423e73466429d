from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from rewards.code.sandbox.container import SandboxUnavailable
from rewards.code.sandbox.probe import escapes
from rewards.config import CodeConfig, MathConfig, RewardsConfig
from rewards.pool.pool import GraderPool

settings.register_profile("rewards", deadline=None, max_examples=60)
settings.load_profile("rewards")

SHARED = Path(__file__).resolve().parents[3] / "shared"


def shared_lines(name: str) -> list[dict[str, Any]]:
    """Return the rows of a JSON lines file beside the checkout; skip the test where it is absent."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"shared/{name} is absent")
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="session")
def cases() -> Callable[[str], list[dict[str, Any]]]:
    return shared_lines


@pytest.fixture(scope="session")
def code_config() -> CodeConfig:
    """Short limits; skips where this machine cannot build the sandbox."""
    config = CodeConfig(wall_seconds=2.5, cpu_seconds=2, total_seconds=20, memory_bytes=256 << 20)
    try:
        found = escapes(config)
    except SandboxUnavailable as missing:
        pytest.skip(str(missing))
    assert found == []
    return config


@pytest.fixture
def broken_bwrap(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a bwrap on the path that ends at once, as where user namespaces are forbidden."""
    program = short_folder / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: no permission to make namespaces' >&2\nexit 1\n")
    for path in (short_folder, program):
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{short_folder}:{os.environ['PATH']}")


@pytest.fixture(scope="module")
def pool() -> Iterator[GraderPool]:
    patient = MathConfig(deadline_seconds=60)  # what is tested is the answers, not how busy the machine is
    with GraderPool(RewardsConfig(math=patient)) as graders:
        yield graders
