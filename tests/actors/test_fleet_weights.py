"""A fleet that gets its weights over HTTP or from Ray's object store."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from actors.fleet.fleet import Fleet
from actors.weights.locate import open_weights
from buffer.config import WeightsConfig
from buffer.weights.location import Location
from helpers.scripted_fleet import InstantLearner, check_until, fleet_spec, ready, scripted
from helpers.small_run import SmallRun
from ops.run.weight_locations import weight_locations

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


@pytest.mark.parametrize("transport", ["http", "ray"])
def test_weights_come_without_a_shared_folder(
    cluster: None, small_run: SmallRun, tmp_path: Path, transport: Literal["http", "ray"]
) -> None:
    """Generators know the weights only by the location that the driver gives them."""
    config = WeightsConfig(transport=transport, full_every=8)
    location = Location.parse("ray:small-weights" if transport == "ray" else small_run.weights.root)
    base = fleet_spec(small_run, tmp_path)
    buffer = base.buffer.model_copy(update={"weights": config})
    with weight_locations(config, location) as locations:
        small_run.weights = open_weights(location, config)
        small_run.publish(0)
        fleet = Fleet(
            base.model_copy(update={"weights": str(locations.inside), "buffer": buffer}), start=scripted
        )
        fleet.start(1, seconds=60)
        with InstantLearner(small_run):
            check_until(fleet, lambda: any(report["loads"] > 3 for report in ready(fleet)), 60)
        fleet.stop(seconds=30)
        small_run.weights.close()
    assert str(locations.inside).startswith(transport)
    assert fleet.reports() == []
