"""The memory estimate: sizes that can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from learner.config import LearnerConfig
from learner.memory import ModelShape, advice, memory_need, model_shape

SHAPE = ModelShape(parameters=1000, layers=2, hidden=10, intermediate=20, vocabulary=100)


def test_the_shape_is_read_from_the_folder_without_loading_it(tiny_model: Path, untied_model: Path):
    shape = model_shape(tiny_model)
    assert (shape.layers, shape.hidden, shape.intermediate, shape.vocabulary) == (2, 32, 48, 29)
    assert model_shape(untied_model).parameters == shape.parameters + 29 * 32


@pytest.mark.parametrize(
    ("config", "bytes_per_value", "expected"),
    [
        # float32: weights 4, gradient 4, two Adam moments 8 bytes a parameter
        ({"zero_stage": 1}, 4, (4000, 4000, 8000)),
        # bfloat16: weights 2, gradient 2 and its float32 sum 4, moments 8 and a float32 master 4
        ({"zero_stage": 1}, 2, (2000, 6000, 12000)),
        ({"zero_stage": 1, "ranks": 4}, 2, (2000, 6000, 3000)),
        ({"zero_stage": 2, "ranks": 4}, 2, (2000, 1500, 3000)),
        ({"zero_stage": 3, "ranks": 4}, 2, (500, 1500, 3000)),
    ],
)
def test_model_states(config, bytes_per_value, expected):
    need = memory_need(SHAPE, LearnerConfig(**config), 0, bytes_per_value)
    assert (need.weights, need.gradients, need.optimizer) == expected


def test_a_reference_is_a_second_model():
    assert memory_need(SHAPE, LearnerConfig(), 0, 2, models=2).weights == 4000
    assert memory_need(SHAPE, LearnerConfig(zero_stage=3, ranks=4), 0, 2, models=2).weights == 1000


def test_activations_follow_the_longest_sequence_and_shrink_with_checkpointing_and_sharing():
    plain = LearnerConfig(token_budget=100)
    layer = (10 * 10 + 4 * 20) * 4
    assert memory_need(SHAPE, plain, 50, 4).activations == 100 * 2 * layer
    assert memory_need(SHAPE, plain, 300, 4).activations == 300 * 2 * layer
    shared = LearnerConfig(token_budget=100, ranks=2, sequence_parallel=2)
    assert memory_need(SHAPE, shared, 300, 4).activations == 150 * 2 * layer
    recomputed = LearnerConfig(token_budget=100, gradient_checkpointing=True)
    assert memory_need(SHAPE, recomputed, 0, 4).activations == 100 * (2 * 10 * 4 + layer)


def test_advice_leaves_out_what_is_already_done():
    assert "gradient_checkpointing" in advice(LearnerConfig())
    assert "zero_stage" not in advice(LearnerConfig())  # one rank: nothing to partition over
    done = LearnerConfig(ranks=2, zero_stage=3, gradient_checkpointing=True)
    assert advice(done) == (
        "lower learner.token_budget (now 16384); raise learner.ranks (now 2) or learner.sequence_parallel"
    )
