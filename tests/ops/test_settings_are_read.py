"""Every setting of the configuration is read by the code that runs; one that is only declared has no effect.

The reads are found by mypy, with the type of the object they are made on: another class may well have an
attribute of the same name. Not counted: declarations, validators, and benchmarks.
"""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from helpers.setting_reads import READS
from ops.config.schema import Config
from ops.config.trackers import MlflowConfig, WandbConfig
from ops.telemetry.tracker_process import Mlflow, Wandb

REPOSITORY = Path(__file__).parents[2]
ROOMS = ("buffer", "rewards", "actors", "learner", "ops")
MYPY = """
[mypy]
plugins = pydantic.mypy, {repository}/tests/helpers/setting_reads.py
follow_imports = silent
ignore_missing_imports = True
[mypy-{foreign}]
follow_imports = skip
"""
FOREIGN = "torch.*,transformers.*,vllm.*,ray.*,deepspeed.*,pyarrow.*,sympy.*,numpy.*,redis.*,trl.*,datasets.*"


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield ``model`` and all models in its fields' types, some of them several times."""
    yield model
    for field in model.model_fields.values():
        for inner in models_in(field.annotation):
            yield from models(inner)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def uncounted_lines(model: type[BaseModel]) -> set[int]:
    """Return the lines of a model's source that do not use its fields: all but methods and properties."""
    source, first = inspect.getsourcelines(model)
    (body,) = ast.parse("".join(source)).body
    assert isinstance(body, ast.ClassDef)
    used: set[int] = set()
    for part in body.body:
        decorators = " ".join(map(ast.unparse, getattr(part, "decorator_list", ())))
        if isinstance(part, ast.FunctionDef) and "validator" not in decorators:
            used.update(range(part.lineno, (part.end_lineno or part.lineno) + 1))
    return {first + line - 1 for line in range(1, len(source) + 1) if line not in used}


def constants(model: type[BaseModel]) -> set[str]:
    """Return the fields with one possible value, by which pydantic distinguishes the members of a union."""
    return {
        name
        for name, field in model.model_fields.items()
        if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
    }


def arguments(model: type[BaseModel]) -> set[str]:
    """Return the fields that reach a tracker's constructor by name, in a process of its own."""
    trackers = {WandbConfig: Wandb, MlflowConfig: Mlflow}
    return set(inspect.signature(trackers[model]).parameters) if model in trackers else set()


def counts(path: str) -> bool:
    return path.startswith(ROOMS) and not path.startswith("ops/bench/")


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str, int]]:
    """(attribute's full name, file, line) of every attribute that the rooms read."""
    folder = tmp_path_factory.mktemp("mypy")
    (folder / "mypy.ini").write_text(MYPY.format(repository=REPOSITORY, foreign=FOREIGN))
    command = [sys.executable, "-m", "mypy", "--config-file", str(folder / "mypy.ini")]
    command += ["--cache-dir", os.devnull, *ROOMS]  # what is cached is not read again
    environment = os.environ | {READS: str(folder / "reads"), "PYTHONPATH": str(REPOSITORY / "tests")}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert (folder / "reads").exists(), done.stdout + done.stderr
    rows = (line.split("\t") for line in (folder / "reads").read_text().splitlines())
    return {(name, path, int(line)) for name, path, line in rows if counts(path)}


def test_every_setting_is_read(reads: set[tuple[str, str, int]]) -> None:
    unread = []
    for model in dict.fromkeys(models(Config)):
        source = str(Path(inspect.getsourcefile(model) or "").relative_to(REPOSITORY))
        uncounted = uncounted_lines(model)
        found = {name for name, path, line in reads if path != source or line not in uncounted}
        prefixes = [f"{each.__module__}.{each.__qualname__}" for each in model.__mro__]
        for field in model.model_fields.keys() - arguments(model) - constants(model):
            if not found & {f"{prefix}.{field}" for prefix in prefixes}:
                unread.append(f"{model.__name__}.{field}")
    assert sorted(unread) == []
