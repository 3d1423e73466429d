"""The simulated cluster keeps the staleness bound, gains by it, and takes the time that its law gives."""

from __future__ import annotations

import pytest

from ops.bench.async_simulation import Simulation, synchronous_seconds
from ops.bench.simulated_engine import Cluster, Group, SimulatedEngine

SMALL = Cluster(generators=8, batch=32)
SAME_LENGTH = Cluster(generators=2, slots=8, batch=8, group_size=2, median=1000, limit=1000, flat_share=0.0)


def test_a_larger_bound_is_faster_and_is_kept_without_favouring_short_answers() -> None:
    learning = synchronous_seconds(SMALL) / SMALL.ratio
    outcomes = {bound: Simulation(SMALL, bound, learning).run(12, warm_up=4) for bound in (0, 1, 4)}
    assert outcomes[0].staleness == 0
    assert all(outcome.staleness <= bound for bound, outcome in outcomes.items())
    speeds = [outcome.steps_per_hour for outcome in outcomes.values()]
    assert speeds == sorted(speeds)
    assert outcomes[4].length_bias == pytest.approx(1.0, abs=0.02)


def test_equal_answers_take_their_length_in_decode_steps() -> None:
    seconds = SAME_LENGTH.limit * SAME_LENGTH.weights_seconds
    assert synchronous_seconds(SAME_LENGTH) == pytest.approx(seconds)
    in_turns = Simulation(SAME_LENGTH, 0, learn_seconds=seconds).run(10, warm_up=2)
    assert in_turns.steps_per_hour == pytest.approx(3600 / (2 * seconds))
    assert in_turns.learner_wait == pytest.approx(1 / 2)


def test_an_engine_slows_with_the_responses_that_share_it() -> None:
    engine = SimulatedEngine(Cluster(weights_seconds=1.0, sequence_seconds=0.5))
    group = Group(version=0, left=2, tokens=30, flat=False)
    engine.ends = [(10.0, 0, group), (20.0, 1, group)]
    assert engine.next_end() == 20.0
    engine.advance(20.0)
    assert engine.clock == 10.0
    engine.ends.pop(0)
    assert engine.next_end() == 20.0 + 10 * 1.5
