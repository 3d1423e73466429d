"""Helpers of other rooms' tests that fault tests need too."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def actors_helpers() -> Any:
    """The module tests/actors/conftest.py: small runs on a real Redis, tiny models."""
    name = "actors_helpers"
    if name not in sys.modules:
        found = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "actors/conftest.py")
        assert found is not None
        assert found.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(found)
        found.loader.exec_module(sys.modules[name])
    return sys.modules[name]
