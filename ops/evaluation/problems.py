"""A run's problems, read and checked before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from buffer.prompts.dataset import Dataset, read_dataset
from buffer.prompts.row import Row
from ops.config.derived import columns_of
from ops.config.schema import Config, ConfigError
from rewards.pool.registry import Graders


@dataclass(frozen=True)
class Problems:
    """Problems to train on, problems for the accuracy before and after (None: not measured), benchmarks by
    name."""

    train: Dataset
    test: Dataset | None
    benchmarks: Mapping[str, Dataset]


def read_problems(config: Config) -> Problems:
    """Read every file of problems that the config names. Raises DatasetError or ConfigError."""
    columns = columns_of(config)
    test = read_dataset(config.data.test, columns) if config.data.test else None
    named = config.evaluation.benchmarks.items()
    benchmarks = {name: read_dataset(benchmark.path, columns) for name, benchmark in named}
    problems = Problems(read_dataset(config.data.train, columns), test, benchmarks)
    for dataset in filter(None, (problems.train, test, *benchmarks.values())):
        dataset.refuse_set_aside(config.data.allow_skipped)
    _refuse_ungraded(config, problems)
    return problems


def _refuse_ungraded(config: Config, problems: Problems) -> None:
    """Raise ConfigError for problems that this machine cannot grade, if the generators run here."""
    if config.ray.address is not None:
        return
    named = {"data.train": problems.train} | {f"benchmark {n}": d for n, d in problems.benchmarks.items()}
    for name, dataset in named.items():
        if reason := Graders(config.rewards).refusal(dataset.abilities):
            raise ConfigError(f"{name} has programs to grade, but {reason} (magicrl doctor sandbox)")


def take_evenly(dataset: Dataset, responses: int) -> tuple[list[Row], int]:
    """Return as many rows as possible and the samples of each, so that there are at least ``responses``."""
    rows = list(islice(dataset, responses))
    return rows, -(-responses // len(rows))
