"""An exported checkpoint loads in transformers, with the trained weights."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Literal

import pytest
import torch
from transformers import AutoModelForCausalLM

from helpers.learner_run import MakeRun
from learner.checkpoint.checkpoint import CheckpointError
from learner.checkpoint.export import export_checkpoint
from learner.config import LearnerConfig
from learner.recipe.schedule import Schedule, StageConfig


@pytest.mark.parametrize(
    ("zero_stage", "dtype"), [(0, "float32"), (1, "float32"), (1, "bfloat16"), (3, "float32")]
)
def test_an_export_loads_in_transformers_with_the_trained_weights(
    make_run: MakeRun, tmp_path: Path, zero_stage: Literal[0, 1, 3], dtype: Literal["float32", "bfloat16"]
) -> None:
    config = LearnerConfig(lr=1e-2, zero_stage=zero_stage, zero_persist=0, dtype=dtype)
    run = make_run(Schedule([StageConfig(response_limit=24, prompts_per_step=2, group_size=4)], config))
    learner = run.learner()
    learner.begin()
    run.feed()
    learner.run(1, threading.Event())
    (run.model / "tokenizer.json").write_text("{}")
    count = export_checkpoint(run.checkpoints.newest(), run.model, tmp_path / "out")
    (run.model / "tokenizer.json").unlink()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    trained = run.published()
    exported = dict(model.named_parameters())
    assert exported.keys() == trained.keys()
    assert all(torch.equal(exported[name].to(trained[name].dtype), trained[name]) for name in trained)
    initial = dict(AutoModelForCausalLM.from_pretrained(run.model).named_parameters())
    assert not any(torch.equal(exported[name], initial[name]) for name in trained)
    assert count == sum(weight.numel() for weight in trained.values())
    assert (tmp_path / "out" / "tokenizer.json").exists()
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "float32"
    with pytest.raises(CheckpointError, match="not empty"):
        export_checkpoint(run.checkpoints.newest(), run.model, tmp_path / "out")
