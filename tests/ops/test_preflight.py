"""A model folder that cannot be trained, and a resume that changes too much, are refused in one line."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from buffer.records.versions import PolicyVersion
from learner.checkpoint.checkpoint import Checkpoint, Checkpoints
from learner.config import CheckpointConfig
from learner.memory import model_shape
from ops.bench.tiny_model import write_tiny_model
from ops.config.loader import load_config
from ops.config.schema import ConfigError
from ops.run.preflight import check_changes, check_model, check_model_folder, check_prompts


def make(folder: Path, config: object = None, weights: bool = True, tokenizer: bool = True) -> Path:
    folder.mkdir()
    config = {"model_type": "qwen2", "max_position_embeddings": 128} if config is None else config
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    if weights:
        (folder / "model.safetensors").touch()
    if tokenizer:
        (folder / "tokenizer.json").touch()
    return folder


def test_positions_are_read(tmp_path: Path) -> None:
    assert check_model_folder(make(tmp_path / "m")) == 128
    assert check_model_folder(make(tmp_path / "n", {"model_type": "qwen2"})) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"config": "{"}, "config.json is not readable"),
        ({"config": "[]"}, "config.json is not a mapping"),
        ({"config": {}}, "names no model_type"),
        ({"weights": False}, "holds no weights .* download it again"),
        (
            {"config": {"model_type": "qwen2", "quantization_config": {}}},
            "is quantized, .* the unquantized model",
        ),
        ({"config": {"model_type": "qwen2_vl", "vision_config": {}}}, "takes images .* a text-only"),
        ({"config": {"model_type": "gpt_oss"}}, "running gpt_oss model"),
        ({"tokenizer": False}, "holds no tokenizer"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, settings: dict[str, object], message: str) -> None:
    folder = make(tmp_path / "m", **settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"model.path: .*{message}"):
        check_model_folder(folder)


def test_weights_in_a_format_of_old_are_refused_with_the_way_to_convert_them(tmp_path: Path) -> None:
    folder = make(tmp_path / "m", weights=False)
    (folder / "pytorch_model.bin").touch()
    (folder / "consolidated.safetensors").touch()
    with pytest.raises(ConfigError, match=r"holds no weights .* save_pretrained"):
        check_model_folder(folder)


def test_no_folder_and_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        check_model_folder(tmp_path / "absent")
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        check_model_folder(tmp_path)


def test_a_stage_beyond_the_positions_is_refused(model: Path) -> None:
    config = load_config("quickstart", [f"model.path={model}", "stages.0.response_limit=100000"])
    with pytest.raises(ConfigError, match="positions"):
        check_model(config)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def checkpoint(tmp_path: Path, model: Path) -> Checkpoint:
    checkpoints, version = Checkpoints(tmp_path, CheckpointConfig()), PolicyVersion(1, 4)
    config = load_config("quickstart", ["learner.zero_stage=2", "learner.lr=1e-6"]).learner
    state = {"config": config.model_dump(mode="json"), "model": asdict(model_shape(model))}
    with checkpoints.new(version) as checkpoint:
        checkpoint.write_state(state)
    return checkpoints.at(4)


def test_what_a_resume_changes_is_returned(checkpoint: Checkpoint, model: Path) -> None:
    changed = ["learner.zero_stage=2", "learner.lr=3e-6"]
    config = load_config("quickstart", [f"model.path={model}", *changed])
    assert check_changes(checkpoint, config) == {"lr": (1e-6, 3e-6)}


def test_a_fixed_setting_is_named_with_its_old_value(checkpoint: Checkpoint, model: Path) -> None:
    with pytest.raises(ConfigError, match=r"only be resumed with learner.zero_stage=2$"):
        check_changes(checkpoint, load_config("quickstart", [f"model.path={model}"]))


def test_another_model_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    other = write_tiny_model(tmp_path / "other", layers=2)
    with pytest.raises(
        ConfigError, match=r"^model.path: .*\(parameters \d+, layers 4; the folder has .*layers 2"
    ):
        check_changes(checkpoint, load_config("quickstart", [f"model.path={other}", "learner.zero_stage=2"]))


def test_prompts_are_rendered_as_the_configuration_asks(model: Path, tmp_path: Path) -> None:
    path, template = f"model.path={model}", tmp_path / "template.jinja"
    assert not check_prompts(load_config("quickstart", [path]))
    with pytest.raises(ConfigError, match=r"model.chat_template: .*template.jinja is not readable"):
        check_prompts(load_config("quickstart", [path, f"model.chat_template={template}"]))
    template.write_text(
        "{% if think %}{{ raise_exception('no thoughts') }}{% endif %}{{ messages[0].content }}"
    )
    given = [path, f"model.chat_template={template}"]
    assert check_prompts(load_config("quickstart", given))
    with pytest.raises(ConfigError, match=r"model.path: .* no thoughts; set model.chat_template"):
        check_prompts(load_config("quickstart", [*given, "model.chat_template_kwargs={think: true}"]))
