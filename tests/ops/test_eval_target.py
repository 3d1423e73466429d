"""The rules under which ``magicrl eval`` measures a run's policy."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ops.bench.tiny_model import write_tiny_model
from ops.commands.jobs.eval import app
from ops.config.loader import load_config
from ops.config.schema import ConfigError
from ops.evaluation.target import run_target
from ops.run.run import RunFailed


def test_a_run_is_sampled_and_graded_by_its_own_rules() -> None:
    words = ["actors.thinking.budget=5", "data.system_prompt=Think.", "data.instruction=Box it."]
    target = run_target(load_config("quickstart", words))
    assert (target.limits.max_tokens, target.limits.thinking_tokens) == (48, 5)
    assert target.limits.deadline is None
    assert (target.prompt_format.system_prompt, target.columns.instruction) == ("Think.", "Box it.")
    assert (target.engine.dtype, target.engine.kv_cache_gib) == ("float32", 0.25)
    assert target.thinking.budget == 5


def test_a_plain_model_s_template_and_its_arguments_are_options(tmp_path: Path) -> None:
    model, problems, template = write_tiny_model(tmp_path / "m"), tmp_path / "p.jsonl", tmp_path / "t.jinja"
    problems.write_text('{"question": "1+1", "answer": "2"}')
    template.write_text("{{ messages }}{{ think }}")
    for options, error in (
        (["--chat-template-kwargs", '{"think": false}'], "there is no chat template"),
        (
            ["--chat-template-kwargs", '{"thonk": false}', "--chat-template", str(template)],
            "thonk: .* no such",
        ),
        (["--chat-template-kwargs", "false"], "false: must be a JSON object"),
        (["--chat-template", str(tmp_path / "absent")], "absent is not readable"),
    ):
        ended = CliRunner().invoke(app, [str(model), str(problems), *options])
        with pytest.raises((ConfigError, RunFailed), match=error):
            raise ended.exception or AssertionError(ended.output)
