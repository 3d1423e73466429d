"""A pretrained model with its own tokenizer and chat template, on word problems, without a line of code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.running import CACHE, Magicrl

pytestmark = [pytest.mark.system, pytest.mark.soak, pytest.mark.timeout(1800)]

NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo")
THINGS = ("apples", "books", "coins", "stamps")


@pytest.fixture(scope="session")
def smollm() -> Path:
    pytest.importorskip("gguf", reason="pip install 'magicrl[bench]'")
    from ops.quickstart.smollm import SmolLMUnavailable, build_smollm

    try:
        return build_smollm(CACHE / "models")
    except SmolLMUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def word_problems(tmp_path: Path) -> Path:
    path = tmp_path / "problems.jsonl"
    rows = []
    for i, name in enumerate(NAMES * 8):
        have, more, thing = 2 + i % 7, 1 + i % 5, THINGS[i % 4]
        rows.append(
            {
                "question": f"{name} has {have} {thing} and gets {more} more. How many {thing} now?",
                "answer": have + more,
            }
        )
    rows.append({"question": "", "answer": 3})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_pretrained_model_trains_for_three_steps(
    magicrl: Callable[..., Magicrl], smollm: Path, word_problems: Path, tmp_path: Path
) -> None:
    config = tmp_path / "words.yaml"
    config.write_text(
        f"""
        run: {{name: words, steps: 3}}
        model: {{path: {smollm}}}
        data:
          train: [{word_problems}]
          instruction: "Answer with a number."
          max_prompt_tokens: 128
        stages: [{{response_limit: 40, prompts_per_step: 1, group_size: 16}}]
        rewards: {{math: {{answer: boxed_or_stated}}}}
        buffer: {{max_rejected_per_step: 100}}  # it is right too seldom for ten batches
        actors:
          num_cpus: 2
          # without the processor's own bfloat16 instructions, bfloat16 decodes some sixty times slower
          engine: {{dtype: float32, kv_cache_gib: 0.5, enforce_eager: true}}
        learner: {{lr: 1.0e-6, dtype: float32, token_budget: 2048}}
        """
    )
    run = magicrl(str(config), command="train", name="words")
    assert run.end(1500) == 0, run.text()
    assert "65 rows" not in run.text()
    assert "64 rows, 1 set aside" in run.text()
    summary = run.summary()
    assert summary["steps"] == 3
    assert summary["groups"]["trained"] == 3
