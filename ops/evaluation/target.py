"""What is evaluated: a model as it is, or a run's checkpoint sampled and graded as the run does it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from actors.config import ThinkingConfig, VllmConfig
from actors.engines.base import SamplingLimits
from buffer.prompts.row import Columns
from ops.config.derived import columns_of, stage_rules
from ops.config.schema import Config
from rewards.config import RewardsConfig

LONGEST = 32_768
"""Tokens of a response where nothing else is said: the limit that Skywork-OR1 evaluates with."""


@dataclass(frozen=True)
class EvalTarget:
    """How a policy's answers are sampled and graded."""

    engine: VllmConfig
    limits: SamplingLimits
    columns: Columns
    rewards: RewardsConfig
    system_prompt: str | None = None
    thinking: ThinkingConfig = field(default_factory=ThinkingConfig)


def model_target(gpu: bool) -> EvalTarget:
    """A model folder that no run is known of. Not compiled on a CPU: that takes longer than it saves."""
    engine = VllmConfig(enforce_eager=not gpu)
    return EvalTarget(engine, SamplingLimits(LONGEST), Columns(), RewardsConfig())


def run_target(config: Config) -> EvalTarget:
    """The policy of a run, under the rules of its last stage; a response may take as long as it takes."""
    return EvalTarget(
        config.actors.engine,
        replace(stage_rules(config)[-1].limits, deadline=None),
        columns_of(config),
        config.rewards,
        config.data.system_prompt,
        config.actors.thinking,
    )


def is_model(folder: Path) -> bool:
    """Whether ``folder`` is a Hugging Face model, not a run."""
    return (folder / "config.json").is_file()
