"""Names of metrics: by the conventions, in the catalogue, and asked for only where they are measured."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from buffer.store.rollout_buffer import RolloutBuffer
from helpers.dashboards import all_panels, queries_of
from ops.telemetry.alerts import RULES
from ops.telemetry.metrics.live import LiveMetrics

BEYOND = {
    "reference",  # what rules compare with: no number of a run belongs in a rule
    "gen_weights_failures",  # the receiving side of weights_broadcast_failures
    "buffer_groups",  # the books
    "learner_phase",  # what the learner does now
    "eval_step",  # whose weights eval_accuracy_ratio is about
    "eval_pass_ratio",  # pass@k, of which the catalogue has only avg@k's name
}
"""Metrics that the catalogue does not list."""
ROOT = Path(__file__).parents[2]
CATALOGUE = ROOT.parent / "shared/METRICS.md"

NAMES = """
import importlib, pathlib
for room in ("buffer", "rewards", "actors", "ops/telemetry/metrics"):
    for path in pathlib.Path(room).rglob("*.py"):
        if '"magicrl_' in path.read_text():
            importlib.import_module(".".join(path.with_suffix("").parts))
from prometheus_client import REGISTRY
for family in REGISTRY.collect():
    if family.name.startswith("magicrl_"):
        print(family.type, family.name, family.documentation)
"""
"""Prints every metric that a module of the rooms defines."""


def defined() -> list[tuple[str, str, str]]:
    """Type, name and help of every metric that the rooms define."""
    result = subprocess.run(
        [sys.executable, "-c", NAMES], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    return [tuple(line.split(" ", 2)) for line in result.stdout.splitlines()]  # type: ignore[misc]


def test_names_follow_the_conventions() -> None:
    for kind, name, text in defined():
        assert text.rstrip().endswith("."), f"{name}: help text"
        if kind == "counter":
            assert re.search(r"_(tokens|seconds|bytes|\w+s|\w+ed|total|nonfinite|version)$", name), name
        assert not re.search(r"_(ms|percent|minutes|mb)$", name), name


@pytest.mark.skipif(not CATALOGUE.exists(), reason="the catalogue is not at hand")
def test_names_are_the_catalogue_s() -> None:
    rows = re.findall(
        r"^\| (\w+?)(?: \(recording rule\))?(?: / \w+)? ?(?:\{[\w,]+\})? ?\|", CATALOGUE.read_text(), re.M
    )
    catalogue = {row.removesuffix("_total") for row in rows} | {"redis_memory_max_bytes"}
    ours = {name.removeprefix("magicrl_") for _, name, _ in defined()}
    assert ours - catalogue <= BEYOND


def test_dashboards_and_rules_ask_only_for_what_is_measured(buffer: RolloutBuffer) -> None:
    live = LiveMetrics(buffer, CollectorRegistry())
    live.poll()
    rooms = {name for _, name, _ in defined()} | {family.name for family in live.collect()}
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    recorded = {rule["record"] for rule in rules if "record" in rule}
    queries = [query.expr for _, panel in all_panels() for query in queries_of(panel)]
    for expression in [*queries, *(rule["expr"] for rule in rules)]:
        for name in re.findall(r"magicrl[:_][\w:]+", expression):
            base = re.sub(r"_(bucket|sum|count|total)$", "", name)
            assert {name, base} & (rooms | recorded), f"{name} in {expression}"
