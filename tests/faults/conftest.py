"""Helpers of other rooms' tests that fault tests need too."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def learner_helpers() -> ModuleType:
    """The module tests/learner/conftest.py: runs of a learner fed by a thread, tiny models."""
    return _conftest("learner")


def _conftest(room: str) -> ModuleType:
    name = f"{room}_helpers"
    if name not in sys.modules:
        found = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / room / "conftest.py")
        assert found is not None
        assert found.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(found)
        found.loader.exec_module(sys.modules[name])
    return sys.modules[name]
