"""The table of who supervises whom names settings and constants that exist, with the values they have."""

from __future__ import annotations

import inspect
import re
from functools import reduce
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ops.run
from helpers.minimal_config import MINIMAL
from ops.config.schema import Config

SPANS = re.findall(r"`([^`]+)`", Path(ops.run.__file__).with_name("supervision.md").read_text())
VALUES = [span.split(" = ") for span in SPANS if " = " in span]
ORDERS = [pair for span in SPANS for pair in pairwise(span.split(" < "))]
DEFAULTS = Config.model_validate(MINIMAL)


def value(name: str) -> Any:
    """Return a setting (a.b.c), a module's constant (a.b.C) or a parameter's default (a.b.Class.c)."""
    *path, last = name.split(".")
    if last.isupper():
        return getattr(import_module(".".join(path)), last)
    if path[-1][0].isupper():
        owner = getattr(import_module(".".join(path[:-1])), path[-1])
        return inspect.signature(owner).parameters[last].default
    return reduce(getattr, name.split("."), DEFAULTS)


@pytest.mark.parametrize(("name", "stated"), VALUES, ids=[name for name, _ in VALUES])
def test_a_stated_value_is_the_one_in_the_code(name: str, stated: str) -> None:
    assert value(name) == (None if stated == "None" else float(stated))


@pytest.mark.parametrize(("shorter", "longer"), ORDERS)
def test_what_must_be_shorter_is_shorter(shorter: str, longer: str) -> None:
    assert value(shorter) < value(longer)


def test_the_table_states_values_and_orders() -> None:
    assert len(VALUES) > 30
    assert len(ORDERS) >= 5
