"""The registry in Redis: slots of external generators, reports, the requested number."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from actors.generator.registry import FIRST_EXTERNAL_SLOT, REPORT_SECONDS, FleetRegistry


@pytest.fixture
def registry(client: redis.Redis) -> FleetRegistry:
    return FleetRegistry(client, "r")


def test_no_two_have_one_slot(registry: FleetRegistry) -> None:
    with ThreadPoolExecutor(16) as threads:
        taken = list(threads.map(lambda _: registry.take_slot(60), range(16)))
    assert sorted(slot for slot, _ in taken) == list(range(FIRST_EXTERNAL_SLOT, FIRST_EXTERNAL_SLOT + 16))
    assert len({name for _, name in taken}) == 16


def test_the_lowest_free_slot_is_taken_again(registry: FleetRegistry) -> None:
    first, second = registry.take_slot(60), registry.take_slot(60)
    registry.free_slot(*first)
    assert registry.take_slot(60)[0] == FIRST_EXTERNAL_SLOT
    registry.free_slot(*first)  # another one's by now
    assert registry.take_slot(60)[0] == FIRST_EXTERNAL_SLOT + 2
    registry.free_slot(*second)
    assert registry.take_slot(60)[0] == FIRST_EXTERNAL_SLOT + 1


def test_reports_keep_a_slot_and_silence_loses_it(registry: FleetRegistry, client: redis.Redis) -> None:
    slot, name = registry.take_slot(900)
    (key,) = client.keys(f"*slot:{slot}")
    assert client.ttl(key) > 600, "an engine may take minutes to start"
    registry.publish_report({"name": name, "slot": slot})
    assert 0 < client.ttl(key) <= REPORT_SECONDS
    client.delete(key)  # expired: Redis was away for longer
    registry.publish_report({"name": name, "slot": slot})
    assert client.get(key) == name.encode()
    client.delete(key)
    assert registry.take_slot(60)[0] == slot
    registry.publish_report({"name": name, "slot": slot})
    assert client.get(key) != name.encode(), "what another one has by now stays its own"


def test_the_fleet_s_slots_are_its_own(registry: FleetRegistry, client: redis.Redis) -> None:
    registry.publish_report({"name": "generator-0-a", "slot": 0})
    registry.publish_report({"name": "generator-1000-b", "slot": FIRST_EXTERNAL_SLOT})
    assert [key.decode().rpartition(":")[2] for key in client.keys("*slot:*")] == [str(FIRST_EXTERNAL_SLOT)]
    assert [report["name"] for report in registry.external_reports()] == ["generator-1000-b"]
    assert len(registry.reports()) == 2


def test_a_requested_number_is_forgotten_by_a_new_life_of_the_run(registry: FleetRegistry) -> None:
    assert registry.target() is None
    registry.set_target(3)
    assert registry.target() == 3
    registry.forget_target()
    assert registry.target() is None


def test_the_spec_is_published_again_only_where_redis_lost_it(
    registry: FleetRegistry, client: redis.Redis
) -> None:
    assert registry.spec() is None
    registry.save_spec("first")
    registry.keep_spec("second")
    assert registry.spec() == "first"
    client.flushdb()
    registry.keep_spec("second")
    assert registry.spec() == "second"


def test_a_redis_that_is_away_is_no_error_to_those_who_report_and_read() -> None:
    away = FleetRegistry(redis.Redis(port=1), "r")
    away.publish_report({"name": "generator-0-a", "slot": 0})
    away.remove("generator-0-a")
    assert away.reports() == []
    assert away.target() is None
    with pytest.raises(redis.ConnectionError):
        away.set_target(1)
