"""Configuration: every mistake is named with its fix, and every field explains itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from helpers.minimal_config import MINIMAL
from ops.config.loader import RECIPES, apply_override, explain, load_config
from ops.config.schema import Config, ConfigError


@pytest.fixture
def minimal(tmp_path: Path) -> Path:
    path = tmp_path / "minimal.yaml"
    path.write_text(yaml.safe_dump(MINIMAL))
    return path


def test_scientific_notation_is_a_number(minimal: Path) -> None:
    assert load_config(minimal, ["learner.lr=2e-6"]).learner.lr == 2e-6


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learner.grad_clp=1", "learner.grad_clp: unknown key; did you mean 'grad_clip'?"),
        ("lerner.lr=1", "lerner: unknown key; did you mean 'learner'?"),
        ("stages.0.group_sise=4", "stages.0.group_sise: unknown key; did you mean 'group_size'?"),
        ("run.steps=many", "run.steps"),
        ("run.steps=0", "run.steps"),
        ("run.name=a/b", "run.name"),
        ("stages.0.steps=2", "the stages end after 2"),
        ("learner.lr", "must look like"),
        ("run.steps.x.y=[", "not readable as YAML"),
    ],
)
def test_a_mistake_names_the_field_and_the_fix(minimal: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(minimal, [override])
    assert message in str(error.value)


def test_the_error_for_a_missing_field_names_where_to_put_it(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({**MINIMAL, "run": {"name": "r"}}))
    with pytest.raises(ConfigError, match=r"run.steps: missing; add it"):
        load_config(path)


def test_unknown_file_suggests_a_recipe() -> None:
    with pytest.raises(ConfigError, match="did you mean the recipe 'quickstart'"):
        load_config("quikstart.yaml")


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [1", "\udcff"])
def test_unreadable_files_are_errors(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError):
        load_config(path)


def test_overrides_do_not_invent_list_items() -> None:
    with pytest.raises(ConfigError, match="nothing of that name"):
        apply_override({"stages": [{}]}, "stages.3.group_size=1")


@pytest.mark.parametrize("recipe", sorted(path.stem for path in RECIPES.glob("*.yaml")))
def test_every_recipe_loads(recipe: str) -> None:
    assert isinstance(load_config(recipe), Config)


def test_the_explained_config_loads_back_the_same(minimal: Path, tmp_path: Path) -> None:
    config = load_config(minimal)
    path = tmp_path / "explained.yaml"
    path.write_text("\n".join(explain(config)))
    assert load_config(path) == config


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from fields(info.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", info


def test_every_field_is_explained() -> None:
    assert not [name for name, info in fields(Config) if not info.description]


def test_a_missing_option_is_usage_not_a_traceback() -> None:
    command = [sys.executable, "-m", "ops.cli", "scale", "--run", "x"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert "--generators" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_mistake_is_reported_without_loading_the_engines(minimal: Path) -> None:
    code = (
        "import sys; from ops.cli import main; sys.argv = ['magicrl', *sys.argv[1:]]\n"
        "try: main()\n"
        "except SystemExit as end: status = end.code\n"
        "print(status, sorted({'torch', 'vllm', 'ray', 'deepspeed'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, "train", str(minimal), "run.stps=3"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.stdout.splitlines()[-1] == "2 []"
    assert "did you mean 'steps'" in result.stderr


@pytest.mark.parametrize(
    "module", ["buffer.store.rollout_buffer", "buffer.prompts.dataset", "rewards.pool.pool", "ops.run.run"]
)
def test_light_modules_load_no_engine(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'torch', 'vllm', 'ray', 'deepspeed'}} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.strip() == "[]"
