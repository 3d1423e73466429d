"""RunMetrics: the right numbers under the right names, and what it serves."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from prometheus_client import REGISTRY

from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import BufferConfig
from buffer.records.versions import PolicyVersion
from buffer.rules.books import PASS_RATE_BUCKETS, Outcomes
from buffer.store.rollout_buffer import RolloutBuffer
from helpers.scrape import get, value
from learner.coordinator.report import StepReport
from ops.config.loader import load_config
from ops.config.schema import Config, ConfigError
from ops.records.folder import RunFolder, append_line
from ops.telemetry.metrics import learner_metrics
from ops.telemetry.metrics.run_metrics import RunMetrics


def report(**values: Any) -> StepReport:
    """Return a step with the given values; other numbers are 0."""
    blank: dict[str, Any] = {"int": 0, "float": 0.0, "bool": True, "str": "1.0", "dict[str, float]": {}}
    blank |= {"dict[str, int]": {}, "dict[int, int]": {}, "tuple[int, ...]": (0,) * len(PASS_RATE_BUCKETS)}
    fields = {f.name: blank.get(str(f.type)) for f in dataclasses.fields(StepReport)}
    return StepReport(**(fields | values))


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
def run_metrics(config: Config, redis_server: EmbeddedRedis, buffer: RolloutBuffer) -> RunMetrics:
    folder = RunFolder(config.run.path)
    folder.path.mkdir(parents=True)
    return RunMetrics(config, partial(connect, BufferConfig().redis, redis_server.url), buffer, folder)


def test_a_benchmark_has_its_accuracy_every_pass_at_k_and_its_step(
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


def test_the_start_is_that_of_the_run_not_of_this_life(run_metrics: RunMetrics, config: Config) -> None:
    right = [0] * len(PASS_RATE_BUCKETS)
    right[PASS_RATE_BUCKETS.index(0.5)] = 4
    for step in range(3):
        append_line(RunFolder(config.run.path).steps, {"step": step, "pass_rates": right})
    with run_metrics:
        run_metrics.observe_step(report(step=3, pass_rates=(9, *[0] * 9)))
        assert value("reference", name="accuracy_start") == 0.5


def test_the_run_serves_and_writes_its_prometheus_yml(run_metrics: RunMetrics, config: Config) -> None:
    with run_metrics:
        text = (config.run.path / "prometheus.yml").read_text()
        (job,) = yaml.safe_load(text)["scrape_configs"]
        assert get(job["http_sd_configs"][0]["url"])[0] == "application/json"
        assert "magicrl_buffer_depth" in get(f"{run_metrics.url}/metrics")[1]
    with pytest.raises(OSError):
        get(f"{run_metrics.url}/metrics")


def test_open_metrics_are_a_mistake_in_the_configuration(
    config: Config, redis_server: EmbeddedRedis, buffer: RolloutBuffer
) -> None:
    open_host = config.model_copy(update={"metrics": config.metrics.model_copy(update={"host": "0.0.0.0"})})
    folder = RunFolder(config.run.path)
    with pytest.raises(ConfigError, match=r"metrics\.token_file"):
        RunMetrics(
            open_host, partial(connect, BufferConfig().redis, redis_server.url), buffer, folder
        ).__enter__()
