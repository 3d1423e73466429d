"""The rules under which ``magicrl eval`` measures a run's policy."""

from __future__ import annotations

from ops.config.loader import load_config
from ops.evaluation.target import run_target


def test_a_run_is_sampled_and_graded_by_its_own_rules() -> None:
    words = ["actors.thinking.budget=5", "data.system_prompt=Think.", "data.instruction=Box it."]
    target = run_target(load_config("quickstart", words))
    assert (target.limits.max_tokens, target.limits.thinking_tokens) == (48, 5)
    assert target.limits.deadline is None
    assert (target.prompt_format.system_prompt, target.columns.instruction) == ("Think.", "Box it.")
    assert (target.engine.dtype, target.engine.kv_cache_gib) == ("float32", 0.25)
    assert target.thinking.budget == 5
