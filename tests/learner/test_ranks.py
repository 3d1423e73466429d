"""The same update whatever the ranks, the ZeRO stage and the micro-batches: real processes over gloo."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learner.universal import to_universal

LR = 1e-3
BASE = {"lr": LR, "eps": 1e-6, "zero_stage": 1}
SHARING = BASE | {"correction": "tis"}
ZERO3 = BASE | {"zero_stage": 3}
SEVERAL = BASE | {"updates_per_batch": 2, "correction": "icepop", "kl": 0.1}
ZERO = {f"zero{stage}": BASE | {"zero_stage": stage, "token_budget": 50} for stage in range(4)}
SPOILED = {f"spoiled-{name}": config | {"advantage": "no_std"} for name, config in ZERO.items()}
HALF = {
    f"half-zero{stage}": BASE | {"zero_stage": stage, "token_budget": 50, "dtype": "bfloat16"}
    for stage in (1, 2, 3)
}
VARLEN = {"layout": "packed", "attention": "varlen", "packed_row": 100, "token_budget": 200}

CASES: dict[int, dict[str, dict[str, Any]]] = {
    1: {
        "reference": BASE | {"zero_stage": 0},
        "budget": BASE | {"token_budget": 40},
        "packed": BASE | {"layout": "packed", "packed_row": 64},
        "varlen": BASE | VARLEN,
        "checkpointing": BASE | {"zero_stage": 3, "gradient_checkpointing": True},
        "sharing": SHARING,
        "several": SEVERAL,
    },
    2: ZERO
    | SPOILED
    | HALF
    | {
        "several": SEVERAL | {"zero_stage": 3, "token_budget": 50},
        "sharing": SHARING | {"sequence_parallel": 2},  # last: Ulysses stays in its process
        "sharing-packed": SHARING | VARLEN | {"sequence_parallel": 2},
    },
    3: {"zero1": ZERO["zero1"], "zero3": ZERO["zero3"]},
}
"""By number of ranks; all cases of a number run one after the other in the same processes."""

SEEDS = [1, 2, 3]
RESUMED = {
    "resume1": BASE,
    "resume3": BASE | {"zero_stage": 3},
    "resume-half": BASE | {"dtype": "bfloat16"},
}

ROOMY = BASE | {"token_budget": 430, "loss_chunk": 512}
SPARE = 130 << 20
"""Bytes. Two float32 matrices of 194 tokens x 100,000 take 155 MB; of the longer half of the rows, 100 MB."""

Results = dict[int, dict[str, Any]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Results:
    saved = tmp_path_factory.mktemp("saved")
    results: Results = {}
    for world, configs in CASES.items():
        folder = tmp_path_factory.mktemp(f"world{world}")
        cases = resumes(world, saved) | {name: {"config": config} for name, config in configs.items()}
        results[world] = run_cases(folder, world, tiny_model, cases)
    return results


def resumes(world: int, saved: Path) -> dict[str, dict[str, Any]]:
    """Save after two of four steps and go on; the others start from there, on the same or other ranks."""
    whole, rest = {"seeds": [1, 2, 3, 4]}, {"seeds": [3, 4], "first": 2}
    if world == 3:
        sources = {name: to_universal(saved / name, saved / f"{name}-universal", 200) for name in RESUMED}
        return {name: {"config": RESUMED[name], "restore": str(sources[name])} | rest for name in RESUMED}
    if world == 1:
        return {}
    return {
        f"{name}-whole": {"config": config, "save": {"after": 2, "folder": str(saved / name)}} | whole
        for name, config in RESUMED.items()
    } | {
        f"{name}-resumed": {"config": config, "restore": str(saved / name)} | rest
        for name, config in RESUMED.items()
    }


def run_cases(folder: Path, world: int, model: Path, cases: dict[str, dict[str, Any]]) -> dict[str, Any]:
    rows = [{"name": name, "model": str(model), "seeds": SEEDS} | case for name, case in cases.items()]
    for row in rows:
        row["spoiled"] = SEEDS[1:2] if row["name"] in SPOILED else []
    (folder / "cases.json").write_text(json.dumps(rows))
    script = Path(__file__).parent / "rank_process.py"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    words = [sys.executable, str(script), str(world), str(folder)]
    done = subprocess.run(words, env=environment, timeout=280, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return {name: np.load(folder / f"{name}.npz") for name in cases}


def assert_same_training(got: Any, wanted: Any) -> None:
    gradient, expected = got["gradient"], wanted["gradient"]
    assert np.linalg.norm(gradient - expected) / np.linalg.norm(expected) < 1e-6
    np.testing.assert_allclose(got["sums"], wanted["sums"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got["norms"], wanted["norms"], rtol=1e-4)
    assert np.abs(got["weights"] - wanted["weights"]).max() < 1e-2 * LR


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("world", "name"),
    [(1, "budget"), (1, "packed"), (1, "varlen"), (1, "checkpointing")]
    + [(2, name) for name in ZERO]
    + [(3, "zero1"), (3, "zero3")],
)
def test_ranks_zero_stages_and_micro_batches_change_nothing(results: Results, world: int, name: str):
    assert_same_training(results[world][name], results[1]["reference"])


@pytest.mark.parametrize("name", ["sharing", "sharing-packed"])
def test_two_ranks_that_share_sequences_agree_with_one(results: Results, name: str):
    assert_same_training(results[2][name], results[1]["sharing"])


def test_an_allocator_out_of_memory_is_told_and_half_the_budget_gives_the_same_step(
    tmp_path: Path, wide_headed_model: Path
):
    cases: dict[str, dict[str, Any]] = {"roomy": {}, "tight": {"spare_bytes": SPARE}}
    cases = {name: case | {"config": ROOMY, "seeds": SEEDS[:1]} for name, case in cases.items()}
    results = run_cases(tmp_path, 1, wide_headed_model, cases)
    assert str(results["roomy"]["refusal"]) == ""
    assert re.match(
        r"rank 0 ran out of memory on a micro-batch of \d+ x \d+ tokens, \d+ of them of responses: lower "
        r"learner.token_budget \(now 430\); set learner.gradient_checkpointing=true; raise learner.ranks",
        str(results["tight"]["refusal"]),
    )
    assert "DefaultCPUAllocator: can't allocate memory" in str(results["tight"]["refusal"])
    assert_same_training(results["tight"], results["roomy"])


@pytest.mark.parametrize("name", SPOILED)
def test_a_gradient_that_is_not_finite_is_skipped_by_all_ranks(results: Results, name: str):
    assert results[2][name]["applied"].tolist() == [True, False, True]
    assert np.abs(results[2][name]["weights"] - results[2]["spoiled-zero0"]["weights"]).max() < 1e-2 * LR


def test_several_updates_and_a_reference_agree(results: Results):
    assert_same_training(results[2]["several"], results[1]["several"])
    kl = results[1]["several"]["sums"][:, 3]
    assert 0 < kl[0] < kl[2]  # the second mini-batch is already away from the initial model


@pytest.mark.parametrize("name", RESUMED)
def test_a_resume_on_the_same_ranks_is_bit_identical(results: Results, name: str):
    whole, resumed = results[2][f"{name}-whole"], results[2][f"{name}-resumed"]
    assert np.array_equal(resumed["weights"], whole["weights"])
    assert np.array_equal(resumed["norms"], whole["norms"][2:])


@pytest.mark.parametrize("name", RESUMED)
def test_a_resume_on_other_ranks_goes_on_as_if_nothing_happened(results: Results, name: str):
    whole, resumed = results[2][f"{name}-whole"], results[3][name]
    np.testing.assert_allclose(resumed["norms"], whole["norms"][2:], rtol=1e-4)
    assert np.abs(resumed["weights"] - whole["weights"]).max() < 1e-2 * LR
