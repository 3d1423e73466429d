"""The problems of a run, read and found fit before anything is started."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from buffer.dataset import Dataset, read_dataset
from buffer.row import Columns, Row
from ops.config import Config, ConfigError
from rewards.registry import Graders


@dataclass(frozen=True)
class Problems:
    """The problems to train on and, where accuracy is measured, to test on."""

    train: Dataset
    test: Dataset | None


def read_problems(config: Config) -> Problems:
    """Read the files of ``data.train`` and ``data.test``. Raises DatasetError or ConfigError."""
    columns = columns_of(config)
    test = read_dataset(config.data.test, columns) if config.data.test else None
    problems = Problems(read_dataset(config.data.train, columns), test)
    _refuse_ungraded(config, problems)
    return problems


def columns_of(config: Config) -> Columns:
    """How the records of the data files become rows."""
    data = config.data
    return Columns(
        question=data.question,
        answer=data.answer,
        instruction=data.instruction,
        ability=data.ability,
        model=data.difficulty_model,
        abilities=tuple(sorted(config.rewards.abilities)),
    )


def _refuse_ungraded(config: Config, problems: Problems) -> None:
    """Where the generators run on this machine, what it cannot grade is known before anything starts."""
    reason = Graders(config.rewards).refusal(problems.train.abilities) if config.ray.address is None else ""
    if reason:
        raise ConfigError(f"data.train has programs to grade, but {reason} (magicrl doctor sandbox)")


def spread(dataset: Dataset, responses: int) -> tuple[list[Row], int]:
    """Rows and samples of each, at least ``responses`` responses in all, over as many rows as there are."""
    rows = list(islice(dataset, responses))
    return rows, -(-responses // len(rows))
