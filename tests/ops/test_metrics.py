"""Measuring in the driver: the right numbers under the right names, against a real buffer in a real Redis."""

from __future__ import annotations

import dataclasses
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY, CollectorRegistry

from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import BufferConfig
from buffer.prompts.pool import PromptMeta, PromptPool
from buffer.records.versions import PolicyVersion
from buffer.rules.admission import BatchSchedule, StageBatch
from buffer.rules.books import PASS_RATE_BUCKETS, Outcomes
from buffer.store.rollout_buffer import RolloutBuffer
from learner.coordinator.report import StepReport
from ops.config.loader import load_config
from ops.config.schema import Config, ConfigError
from ops.records.folder import RunFolder, append_line
from ops.telemetry.metrics import learner_metrics
from ops.telemetry.metrics.clocks import KEPT_VERSIONS, PublishTimes, WaitClock
from ops.telemetry.metrics.live import LiveMetrics
from ops.telemetry.metrics.reference import mean_pass_rate
from ops.telemetry.metrics.run_metrics import RunMetrics
from ops.telemetry.metrics.utilisation import peak_flops, utilisation


def report(**values: Any) -> StepReport:
    """A step with the given values; numbers are 0 else."""
    blank: dict[str, Any] = {"int": 0, "float": 0.0, "bool": True, "str": "1.0", "dict[str, float]": {}}
    blank |= {"dict[str, int]": {}, "dict[int, int]": {}, "tuple[int, ...]": (0,) * len(PASS_RATE_BUCKETS)}
    fields = {f.name: blank.get(str(f.type)) for f in dataclasses.fields(StepReport)}
    return StepReport(**(fields | values))


def value(metric: str, registry: CollectorRegistry = REGISTRY, /, **labels: str) -> float:
    found = registry.get_sample_value(f"magicrl_{metric}", labels)
    return 0.0 if found is None else found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path_factory.mktemp("r"), memory_bytes=2**28) as running:
        yield running


@pytest.fixture
def buffer(server: EmbeddedRedis) -> Iterator[RolloutBuffer]:
    client = connect(BufferConfig().redis, server.url)
    client.flushall()
    buffer = RolloutBuffer(client, "r", BufferConfig())
    buffer.driver.open_or_create(BatchSchedule((StageBatch(0, 4, 2, 8),), None))
    PromptPool(client, "r", BufferConfig()).fill([PromptMeta(index, "sums", None) for index in range(8)])
    buffer.learner.begin_lineage(0, 0)
    buffer.learner.announce(PolicyVersion(1, 0))
    yield buffer
    buffer.state.close()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    run = {"name": "r", "steps": 100, "folder": str(tmp_path)}
    stages = [
        {"steps": 5, "response_limit": 8, "prompts_per_step": 4, "group_size": 8},
        {"response_limit": 16, "prompts_per_step": 2, "group_size": 8, "entropy_target": 0.7},
    ]
    path = tmp_path / "c.yaml"
    data = {"model": {"path": "m"}, "data": {"train": ["t"]}, "stages": stages, "run": run}
    path.write_text(yaml.safe_dump(data))
    return load_config(path)


@pytest.fixture
def run_metrics(config: Config, server: EmbeddedRedis, buffer: RolloutBuffer) -> RunMetrics:
    folder = RunFolder(config.run.path)
    folder.path.mkdir(parents=True)
    return RunMetrics(config, partial(connect, BufferConfig().redis, server.url), buffer, folder)


def test_a_benchmark_has_its_accuracy_every_pass_at_k_and_the_step_it_is_about(
    run_metrics: RunMetrics,
) -> None:
    run_metrics.observe_evaluation("sums", 4, 0.5, 20, {1: 0.5, 2: 0.75, 4: 0.9})
    assert value("eval_accuracy_ratio", dataset="sums", k="4") == 0.5
    passed = [value("eval_pass_ratio", dataset="sums", k=str(k)) for k in (1, 2, 4)]
    assert passed == [0.5, 0.75, 0.9]
    assert value("eval_step", dataset="sums") == 20


def test_a_step_is_measured(run_metrics: RunMetrics) -> None:
    names = ("learner_tokens_total", "buffer_consumed_total", "train_staleness_versions_sum")
    before = {name: value(name) for name in names}
    waits = value("learner_phase_seconds_sum", phase="wait")
    run_metrics.observe_step(
        report(
            step=7,
            stage=1,
            lineage=2,
            groups=4,
            tokens=100,
            entropy=0.3,
            loss_policy=-3.0,
            loss_entropy=1.0,
            staleness={0: 1, 2: 3},
            seconds={"wait": 2.5, "publish": 0.5},
        )
    )
    assert {name: value(name) - old for name, old in before.items()} == {
        "learner_tokens_total": 100,
        "buffer_consumed_total": 4,
        "train_staleness_versions_sum": 6,
    }
    assert value("learner_step") == 8
    assert value("learner_phase_seconds_sum", phase="wait") - waits == 2.5
    assert value("weights_published_version", lineage="2") == 8
    assert value("learner_loss_share_ratio", term="policy") == 0.75
    assert value("reference", name="entropy_target") == 0.7
    assert value("reference", name="batch_groups") == 2


def test_the_age_of_groups_counts_from_publishing(run_metrics: RunMetrics) -> None:
    run_metrics.begin_lineage(PolicyVersion(1, 0))
    before = value("train_staleness_seconds_count")
    run_metrics.observe_step(report(step=0, staleness={0: 4}))
    run_metrics.observe_step(report(step=1, staleness={0: 1, 1: 2}))
    # Weights that an earlier life of the run published have no age.
    run_metrics.observe_step(report(step=40, staleness={3: 5}))
    assert value("train_staleness_seconds_count") - before == 7


def test_only_the_present_lineage_has_a_version(run_metrics: RunMetrics) -> None:
    run_metrics.begin_lineage(PolicyVersion(3, 12))
    run_metrics.begin_lineage(PolicyVersion(4, 10))
    assert value("weights_published_version", lineage="4") == 10
    assert REGISTRY.get_sample_value("magicrl_weights_published_version", {"lineage": "3"}) is None


def test_skipped_steps_are_counted(run_metrics: RunMetrics) -> None:
    before = value("learner_nonfinite_total")
    run_metrics.observe_step(report(applied=False))
    run_metrics.observe_step(report(step=1))
    assert value("learner_nonfinite_total") - before == 1


def test_utilisation() -> None:
    assert peak_flops({"CPU": 8, "accelerator_type:H100": 1}) == 989e12
    assert peak_flops({"accelerator_type:A100-80G": 1}) == 312e12
    assert peak_flops({"CPU": 8}) is peak_flops({"accelerator_type:X1": 1}) is None
    # A billion weights, 10^5 tokens: 6e14 operations, in a second on two devices of 1e15.
    assert utilisation(1e9, 10**5, 1.0, 2, 1e15) == pytest.approx(0.3)
    assert utilisation(1e9, 10**5, 0.0, 2, 1e15) == 0.0


def test_a_defect_in_measuring_is_logged_and_ends_nothing(
    run_metrics: RunMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as defect, structlog.testing.capture_logs() as logged:
        defect.setattr(learner_metrics, "observe_step", lambda report: 1 / 0)
        run_metrics.observe_step(report(step=7))
    (error,) = logged
    assert (error["event"], error["log_level"], error["step"]) == ("step not measured", "error", 7)
    assert error["exc_info"]
    run_metrics.observe_step(report(step=8))
    assert value("learner_step") == 9


def test_finished_groups_by_kind_and_pass_rate() -> None:
    before = value("groups_total", kind="mixed"), value("group_pass_rate_sum", dataset="sums")
    counts = [0] * len(PASS_RATE_BUCKETS)
    counts[PASS_RATE_BUCKETS.index(0.25)] = 3
    learner_metrics.observe_outcomes(Outcomes(mixed=3, pass_rates={"sums": tuple(counts)}))
    assert value("groups_total", kind="mixed") - before[0] == 3
    assert value("group_pass_rate_sum", dataset="sums") - before[1] == 0.75


@given(st.lists(st.integers(0, 8), min_size=1, max_size=40))
def test_the_mean_pass_rate_of_eight_is_exact(passes: list[int]) -> None:
    """With eight responses every bucket holds one value."""
    counts = [0] * len(PASS_RATE_BUCKETS)
    for k in passes:
        counts[next(i for i, upper in enumerate(PASS_RATE_BUCKETS) if k / 8 <= upper)] += 1
    assert mean_pass_rate(tuple(counts), 8) == pytest.approx(sum(passes) / 8 / len(passes))


def test_the_start_is_that_of_the_run_not_of_this_life(run_metrics: RunMetrics, config: Config) -> None:
    right = [0] * len(PASS_RATE_BUCKETS)
    right[PASS_RATE_BUCKETS.index(0.5)] = 4
    for step in range(3):
        append_line(RunFolder(config.run.path).steps, {"step": step, "pass_rates": right})
    with run_metrics:
        run_metrics.observe_step(report(step=3, pass_rates=(9, *[0] * 9)))
        assert value("reference", name="accuracy_start") == 0.5


def test_books_memory_and_generators_are_live(buffer: RolloutBuffer) -> None:
    pool = PromptPool(buffer.state.client, "r", BufferConfig())
    reply = pool.lease("g", PolicyVersion(1, 0), 3)
    buffer.generator.drop(reply.leases[0], "corrupt", 7)
    registry = CollectorRegistry()
    live = LiveMetrics(buffer, registry)
    live.start()
    live.poll()
    for name in ("g", "h", "h"):
        idle = {"backpressure": 2.0, "sync": 5.0}
        live.set_generators([{"name": name, "slot": 0, "state": "ready", "idle_seconds": idle}])
    try:
        assert value("buffer_depth", registry, state="pending") == 2
        assert value("buffer_depth", registry, state="ready") == 0
        assert value("buffer_dropped_total", registry, reason="corrupt") == 1
        assert registry.get_sample_value("magicrl_buffer_dropped_total", {"reason": "lost"}) == 0
        places = ("in_flight", "pending", "claimed", "trained", "rejected", "dropped")
        assert sum(value("buffer_groups", registry, place=place) for place in places) == 3
        assert value("redis_memory_max_bytes", registry) == 2**28
        assert registry.get_sample_value("magicrl_buffer_oldest_age_seconds") == 0
        assert value("redis_memory_used_bytes", registry) > 0
        assert value("gen_actors", registry, state="ready") == 1
        assert value("buffer_blocked_seconds_total", registry, side="insert") == 4
        assert value("gen_actor_restarts_total", registry, reason="replaced") == 1
        assert value("buffer_dead_letter_total", registry, reason="corrupt") == 1
    finally:
        live.close()
    assert not list(registry.collect())


def test_a_wait_counts_while_it_lasts() -> None:
    now = [10.0]
    clock = WaitClock(lambda: now[0])
    for phase, seconds in (("wait", 4.0), ("update", 2.0), ("wait", 3.0)):
        clock.enter(phase)
        now[0] += seconds
    assert clock.seconds == 7.0
    now[0] += 5.0
    assert clock.seconds == 12.0
    clock.enter("idle")
    now[0] += 5.0
    assert clock.seconds == 12.0


def test_publish_times_give_ages_and_are_forgotten_in_the_end() -> None:
    now = [100.0]
    published = PublishTimes(lambda: now[0])
    published.record(0)
    now[0] += 30.0
    published.record(KEPT_VERSIONS)
    assert (published.age(0), published.age(KEPT_VERSIONS), published.age(1)) == (30.0, 0.0, None)
    published.record(KEPT_VERSIONS + 1)
    assert published.age(0) is None


def test_the_run_serves_and_writes_its_prometheus_yml(run_metrics: RunMetrics, config: Config) -> None:
    with run_metrics:
        text = (config.run.path / "prometheus.yml").read_text()
        (job,) = yaml.safe_load(text)["scrape_configs"]
        with urllib.request.urlopen(job["http_sd_configs"][0]["url"], timeout=10) as reply:
            assert reply.status == 200
        with urllib.request.urlopen(f"{run_metrics.url}/metrics", timeout=10) as reply:
            assert b"magicrl_buffer_depth" in reply.read()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"{run_metrics.url}/metrics", timeout=10)


def test_open_metrics_are_a_mistake_in_the_configuration(
    config: Config, server: EmbeddedRedis, buffer: RolloutBuffer
) -> None:
    open_host = config.model_copy(update={"metrics": config.metrics.model_copy(update={"host": "0.0.0.0"})})
    folder = RunFolder(config.run.path)
    with pytest.raises(ConfigError, match=r"metrics\.token_file"):
        RunMetrics(open_host, partial(connect, BufferConfig().redis, server.url), buffer, folder).__enter__()
