"""A fleet of scripted generators: scaled, healed, given up. The driver looks after it once in a while."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from actors.config import AutoscaleConfig
from actors.fleet.fleet import Fleet
from actors.fleet.healing import GeneratorDied
from actors.generator.registry import FleetRegistry
from helpers.scripted_fleet import InstantLearner, check_until, crashing, fleet_spec, ready, scripted
from helpers.small_run import SmallRun
from helpers.waiting import wait_until
from ops.run.fleet_supervisor import FleetSupervisor
from ops.telemetry.metrics.clocks import WaitClock

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


def test_scale_up_and_down_while_weights_arrive(cluster: None, small_run: SmallRun, tmp_path: Path) -> None:
    small_run.publish(0)
    fleet = Fleet(fleet_spec(small_run, tmp_path), start=scripted)
    registry = FleetRegistry(small_run.client, "small")
    fleet.start(1, seconds=60)
    with InstantLearner(small_run) as learner:
        registry.set_target(4)
        check_until(fleet, lambda: len(ready(fleet)) == 4, 60)
        check_until(fleet, lambda: learner.steps > 5, 60)
        registry.set_target(1)
        check_until(fleet, lambda: len(fleet.reports()) == 1, 60)
        at = learner.steps
        check_until(fleet, lambda: learner.steps > at + 3, 60)
        assert fleet.reports()[0]["slot"] == 0
        assert fleet.reports()[0]["loads"] > 4
    fleet.stop(seconds=30)
    assert small_run.buffer.state.books().balanced


def test_a_frozen_generator_is_replaced_and_training_continues(
    cluster: None, small_run: SmallRun, tmp_path: Path
) -> None:
    small_run.publish(0)
    fleet = Fleet(fleet_spec(small_run, tmp_path), start=scripted)
    fleet.start(2, seconds=60)
    with InstantLearner(small_run) as learner:
        check_until(fleet, lambda: len(ready(fleet)) == 2 and learner.steps > 1, 60)
        frozen = ready(fleet)[0]
        os.kill(frozen["pid"], signal.SIGSTOP)
        check_until(fleet, lambda: fleet.health()[frozen["slot"]].failures == 1, 30)
        assert "stood still" in fleet.health()[frozen["slot"]].reason
        at = learner.steps
        check_until(fleet, lambda: learner.steps > at + 3 and len(ready(fleet)) == 2, 60)
    fleet.stop(seconds=30)
    assert small_run.buffer.state.books().balanced


def test_all_gone_the_learner_waits_and_resumes_when_one_joins(
    cluster: None, small_run: SmallRun, tmp_path: Path
) -> None:
    small_run.publish(0)
    fleet = Fleet(fleet_spec(small_run, tmp_path), start=scripted)
    registry = FleetRegistry(small_run.client, "small")
    fleet.start(1, seconds=60)
    with InstantLearner(small_run) as learner:
        check_until(fleet, lambda: learner.steps > 1, 60)
        registry.set_target(0)
        check_until(fleet, lambda: not fleet.reports(), 60)
        registry.set_target(2)
        check_until(fleet, lambda: len(ready(fleet)) == 2, 60)
        at = learner.steps
        check_until(fleet, lambda: learner.steps > at + 2, 60)
    fleet.stop(seconds=30)
    assert small_run.buffer.state.books().balanced


def test_a_generator_that_crashes_on_start_is_given_up_with_its_reason(
    cluster: None, small_run: SmallRun, tmp_path: Path
) -> None:
    fleet = Fleet(fleet_spec(small_run, tmp_path), start=crashing)
    with pytest.raises(GeneratorDied, match=r"no config\.json"):
        fleet.start(1, seconds=60)
    with pytest.raises(GeneratorDied, match=r"no config\.json"):
        check_until(fleet, lambda: False, 60)
    assert fleet.health()[0].given_up
    fleet.stop(seconds=1)


def test_the_number_follows_who_waits_for_whom(cluster: None, small_run: SmallRun, tmp_path: Path) -> None:
    small_run.publish(0)
    autoscale = AutoscaleConfig(least=1, most=2, window_seconds=0.5, up_at=0.5, down_at=0.5, patience=2)
    base = fleet_spec(small_run, tmp_path)
    actors = base.actors.model_copy(update={"autoscale": autoscale})
    fleet = Fleet(base.model_copy(update={"actors": actors}), start=scripted)
    fleet.start(2, seconds=60)
    failed, clock = threading.Event(), WaitClock()
    try:
        with FleetSupervisor(
            fleet, failed, waited_seconds=lambda: clock.seconds, poll_seconds=0.2
        ) as supervisor:
            # Nobody trains: admission holds both back.
            wait_until(lambda: len(supervisor.reports) == 1 and fleet.target == 1, 60)
            with InstantLearner(small_run):
                clock.enter("wait")
                wait_until(lambda: len(supervisor.reports) == 2 and fleet.target == 2, 60)
    finally:
        fleet.stop(seconds=30)
    assert not failed.is_set()
    assert small_run.buffer.state.books().balanced
