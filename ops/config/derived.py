"""Derive from a run's configuration what the other rooms are started with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from actors.engines.base import SamplingLimits
from actors.generator.environment import StageRules
from actors.sampling.rendering import PromptFormat
from buffer.config import BufferConfig
from buffer.prompts.pool import PromptRules
from buffer.prompts.row import Columns
from buffer.rules.admission import BatchSchedule, StageBatch
from learner.recipe.schedule import StageConfig
from ops.config.schema import Config, ConfigError


def batch_schedule(config: Config) -> BatchSchedule:
    """Return the batch of every step, as the buffer needs it."""
    schedule = config.schedule
    stages = (
        StageBatch(
            first_step=schedule.start(index),
            batch=stage.prompts_per_step,
            group_size=stage.group_size,
            max_tokens=config.data.max_prompt_tokens + stage.response_limit,
        )
        for index, stage in enumerate(schedule.stages)
    )
    return BatchSchedule(tuple(stages), config.run.steps)


def stage_rules(config: Config) -> tuple[StageRules, ...]:
    """Return how the groups of each stage are sampled and selected."""
    return tuple(
        StageRules(
            SamplingLimits(
                max_tokens=stage.response_limit,
                temperature=stage.temperature,
                stop=config.actors.stop,
                thinking_tokens=config.actors.thinking.budget,
                deadline=config.actors.response_seconds,
            ),
            config.learner.truncation_mask,
        )
        for stage in config.stages
    )


def prompt_rules(stages: Iterable[StageConfig], buffer: BufferConfig) -> tuple[PromptRules, ...]:
    """Return which prompts each stage draws: the stage's own settings, else those of the buffer."""
    rules = []
    for index, stage in enumerate(stages):
        difficulty, mixture = buffer.difficulty, buffer.mixture
        if stage.pass_rate is not None:
            low, high = stage.pass_rate
            difficulty = difficulty.model_copy(update={"initial_low": low, "initial_high": high})
        rules.append(PromptRules(index, difficulty, mixture if stage.mixture is None else stage.mixture))
    return tuple(rules)


def columns_of(config: Config) -> Columns:
    """Return how the records of the data files become rows."""
    data = config.data
    return Columns(
        question=data.question,
        answer=data.answer,
        instruction=data.instruction,
        ability=data.ability,
        model=data.difficulty_model,
        abilities=tuple(sorted(config.rewards.abilities)),
    )


def prompt_format(config: Config) -> PromptFormat:
    """Return how prompts are rendered. Raises ConfigError if the chat template's file is not readable."""
    template = config.model.chat_template
    return PromptFormat(
        system_prompt=config.data.system_prompt,
        chat_template=None if template is None else template_text(template),
        chat_template_kwargs=config.model.chat_template_kwargs,
    )


def template_text(file: Path) -> str:
    """Return the text of a chat template. Raises ConfigError if it is not readable."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"model.chat_template: {file} is not readable: {error}") from None
