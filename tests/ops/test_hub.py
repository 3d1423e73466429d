"""An id of the Hugging Face Hub becomes a folder: downloaded once, then from the cache; or one clear line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from helpers.hub import COMMIT, hub
from ops.config.hub import model_folder, with_model_folder
from ops.config.loader import load_config
from ops.config.schema import ConfigError

MODEL = "someone/Tiny-0.1B"
FILES = {name: f"of {name}" for name in ("config.json", "model.safetensors", "tokenizer.json")}
OTHER_FORMATS = dict.fromkeys(("a.bin", "original/a.json", "consolidated.safetensors"), "not read")
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache and a Hub that is not reached."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    reach(NOWHERE, monkeypatch)
    monkeypatch.chdir(tmp_path)


def reach(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let huggingface_hub ask ``address``; it reads its environment once."""
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


def test_downloaded_at_a_revision_and_then_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    with hub(MODEL, "v2", FILES | OTHER_FORMATS) as address:
        reach(address, monkeypatch)
        config = load_config("quickstart", [f"model.path={MODEL}", "model.revision=v2"])
        tokenizer = model_folder(Path(MODEL), "v2", weights=False)
        assert {file.name for file in tokenizer.iterdir()} == {"config.json", "tokenizer.json"}
        resolved = with_model_folder(config).model
        with pytest.raises(ConfigError, match=f"^model {MODEL}: no folder .* 404"):
            model_folder(Path(MODEL))  # of the main branch, which this Hub does not have
    reach(NOWHERE, monkeypatch)
    assert resolved.path.name == COMMIT
    assert {file.name: file.read_text() for file in resolved.path.iterdir()} == FILES
    assert with_model_folder(config).model == resolved  # without a network, too
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert with_model_folder(config).model == resolved


def test_folders_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / MODEL).mkdir(parents=True)
    for folder in (Path(MODEL), Path("absent"), Path("a/b/c"), tmp_path / "x"):
        assert model_folder(folder) == folder
    with pytest.raises(ConfigError, match=r"^model\.revision: .* is no id"):
        model_folder(Path(MODEL), "v2")


@pytest.mark.parametrize("command", ["train quickstart model.path={}", "eval {} data.jsonl"])
def test_without_a_network_a_command_ends_with_one_line(command: str, tmp_path: Path) -> None:
    environment = {"HF_ENDPOINT": NOWHERE, "HF_HOME": str(tmp_path), "COLUMNS": "500"}
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli", *command.format(MODEL).split()],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert f"error model {MODEL}: no folder here, and the Hugging Face Hub does not give it" in done.stderr
