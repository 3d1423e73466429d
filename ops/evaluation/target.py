"""What ``magicrl eval`` measures: a plain model, or a run's checkpoint under the rules of that run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from actors.config import ThinkingConfig, VllmConfig
from actors.engines.base import SamplingLimits
from actors.sampling.rendering import PLAIN, PromptFormat
from buffer.prompts.row import Columns
from ops.config.derived import columns_of, prompt_format, stage_rules
from ops.config.schema import Config
from rewards.config import RewardsConfig

LONGEST = 32_768
"""Default limit of a response, in tokens: the one that Skywork-OR1 evaluates with."""


@dataclass(frozen=True)
class EvalTarget:
    """A policy, and how its responses are sampled and graded."""

    engine: VllmConfig
    limits: SamplingLimits
    columns: Columns
    rewards: RewardsConfig
    prompt_format: PromptFormat = PLAIN
    thinking: ThinkingConfig = field(default_factory=ThinkingConfig)


def model_target(gpu: bool) -> EvalTarget:
    """Return the defaults for a plain model. Not compiled on a CPU: that takes longer than it saves."""
    engine = VllmConfig(enforce_eager=not gpu)
    return EvalTarget(engine, SamplingLimits(LONGEST), Columns(), RewardsConfig())


def run_target(config: Config) -> EvalTarget:
    """Return a run's policy under the rules of its last stage, but without a deadline for a response.

    Raises ConfigError if the chat template's file is not readable.
    """
    return EvalTarget(
        config.actors.engine,
        replace(stage_rules(config)[-1].limits, deadline=None),
        columns_of(config),
        config.rewards,
        prompt_format(config),
        config.actors.thinking,
    )


def is_model(folder: Path) -> bool:
    """Return whether ``folder`` is a Hugging Face model rather than a run."""
    return (folder / "config.json").is_file()
