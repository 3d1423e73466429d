"""Redis users by role, each with what its work needs and no more."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
import redis

from buffer.backend.acl import LIMITS, ROLES, acl_rules
from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.backend.functions import LIBRARY, library_source
from buffer.config import RedisConfig
from buffer.prompts.pool import PromptPool
from buffer.records.versions import PolicyVersion
from buffer.store.inspection import RunInspector
from buffer.store.rollout_buffer import RolloutBuffer
from buffer.store.run_state import RunState
from helpers.buffer_world import World, leased_group


@pytest.fixture
def as_role(played: World, redis_server: EmbeddedRedis) -> Iterator[Callable[[str], redis.Redis]]:
    client = played.client
    for role in ROLES:
        client.execute_command(*acl_rules(played.state.run, role, "s3cret").split(" "))

    def login(role: str) -> redis.Redis:
        return connect(RedisConfig(username=f"magicrl-{role}", password="s3cret"), redis_server.url)

    yield login
    for role in ROLES:
        client.acl_deluser(f"magicrl-{role}")


def test_each_role_can_do_its_work(played: World, as_role: Callable[[str], redis.Redis]) -> None:
    run, config = played.state.run, played.state.config
    generator, trainer = as_role("generator"), RolloutBuffer(as_role("learner"), run, config)
    buffer, pool = RolloutBuffer(generator, run, config), PromptPool(generator, run, config)
    assert buffer.generator.release("g0") == 1
    leases = pool.lease("g1", PolicyVersion(1, 0), 1).leases
    assert buffer.generator.heartbeat("g1", {lease.group: 1 for lease in leases}) == []
    assert all(buffer.generator.push(lease, leased_group(lease)).accepted for lease in leases)
    buffer.state.wait(0.01)
    trainer.learner.commit(1, 0)
    assert trainer.learner.begin_lineage(1, 1).number == 2
    trainer.learner.announce(PolicyVersion(2, 1))
    assert not trainer.driver.incumbent_lives(0.01)
    trainer.driver.stop("enough")
    observer = as_role("observer")
    assert RunState(observer, run, config).books().balanced
    assert len(list(RunInspector(observer, run).groups())) > 0


def test_every_function_in_redis_is_granted_to_some_role() -> None:
    defined = set(re.findall(r"define(?:_learner|_view)?\('(\w+)'", library_source())) | {"open"}
    granted = {name for role in ROLES for name in re.findall(rf"{LIBRARY}_(\w+)", acl_rules("r", role))}
    assert granted == defined


def test_each_role_is_kept_from_the_rest(played: World, as_role: Callable[[str], redis.Redis]) -> None:
    run, config = played.state.run, played.state.config
    generator, observer = as_role("generator"), as_role("observer")
    for forbidden in (
        lambda: RolloutBuffer(generator, run, config).learner.claim(1, 1),
        lambda: RolloutBuffer(generator, run, config).learner.begin_lineage(1, 0),
        lambda: RolloutBuffer(observer, run, config).driver.stop("no"),
        lambda: generator.set("magicrl:{another}:body:0.0.0", b""),
        lambda: generator.flushall(),
        lambda: generator.config_get("*"),
        lambda: generator.eval("return 1", 0),
        lambda: generator.function_load("#!lua name=x\n"),
        lambda: observer.set(f"magicrl:{{{run}}}:control", 1),
        lambda: observer.get("magicrl:{another}:control"),
    ):
        with pytest.raises(redis.exceptions.NoPermissionError):
            forbidden()
    assert "cannot prevent" in LIMITS
