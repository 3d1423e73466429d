"""The schedule of stages: which settings apply at which step. Pure.

A stage may change the response limit, group size, batch, mini-batches, temperature, learning rate, clip,
entropy controller, KL, and the data's pass-rate range and mixture. The entropy coefficient is kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from pydantic import Field, model_validator

from learner.config import LearnerConfig
from rewards.settings import Settings


class StageConfig(Settings):
    """One stage. Fields that are none take the value of ``learner`` or ``buffer``."""

    steps: int | None = Field(None, ge=1)
    """Length in steps; none: to the end of the run (only the last stage)."""
    response_limit: int = Field(ge=1)
    """Longest response in tokens; a response cut here is truncated."""
    prompts_per_step: int = Field(ge=1)
    """Groups in a batch (B_k)."""
    group_size: int = Field(ge=2)
    """Responses per prompt (G)."""
    temperature: float = Field(1.0, gt=0)
    """Sampling temperature; the learner divides its logits by it too."""
    updates_per_batch: int | None = Field(None, ge=1)
    """Optimizer steps per batch in this stage."""
    lr: float | None = Field(None, ge=0)
    """Learning rate in this stage."""
    clip_low: float | None = Field(None, ge=0, lt=1)
    """Lower clip in this stage."""
    clip_high: float | None = Field(None, ge=0)
    """Upper clip in this stage."""
    kl: float | None = Field(None, ge=0)
    """KL coefficient in this stage."""
    entropy_target: float | None = Field(None, ge=0)
    """Entropy target (nats) in this stage."""
    entropy_delta: float | None = Field(None, ge=0)
    """Step of the entropy coefficient in this stage."""
    entropy_cap: float | None = Field(None, ge=0)
    """Upper bound of the entropy coefficient in this stage; .inf: none."""
    pass_rate: tuple[float, float] | None = None
    """Only prompts whose pass rate lies strictly between these two shares are drawn in this stage; none:
    buffer.difficulty.initial_low and initial_high."""
    mixture: dict[str, float] | None = None
    """Draws per prompt and epoch in this stage, by data source; sources left out have weight 1. None:
    buffer.mixture."""

    @model_validator(mode="after")
    def _pass_rate_is_a_range(self) -> StageConfig:
        if self.pass_rate is not None and not 0 <= self.pass_rate[0] < self.pass_rate[1] <= 1:
            raise ValueError(f"pass_rate {list(self.pass_rate)}: needs 0 <= low < high <= 1")
        return self


class Schedule:
    """The stage of each step, and the learner's settings in it."""

    def __init__(self, stages: Sequence[StageConfig], learner: LearnerConfig) -> None:
        """Raises ValueError if any stage but the last has no length."""
        if not stages:
            raise ValueError("stages: at least one stage is needed")
        for index, stage in enumerate(stages[:-1]):
            if stage.steps is None:
                raise ValueError(f"stages[{index}].steps: every stage but the last needs a length")
        self.stages = tuple(stages)
        self._starts = [0, *accumulate(stage.steps or 0 for stage in stages[:-1])]
        self._learners = tuple(_resolve(stage, learner) for stage in stages)

    def index(self, step: int) -> int:
        """Return the stage of a step by index; steps beyond the schedule belong to its last stage."""
        return bisect_right(self._starts, step) - 1

    def sampled_at(self, step: int, staleness: int) -> int:
        """Return the last stage whose groups may be sampled with the weights that step ``step`` trains."""
        return self.index(step + staleness)

    def stage(self, step: int) -> StageConfig:
        """Return the stage of a step."""
        return self.stages[self.index(step)]

    def learner(self, step: int) -> LearnerConfig:
        """Return the learner's settings at a step, with the stage's own in their place."""
        return self._learners[self.index(step)]

    def start(self, index: int) -> int:
        """Return the first step of a stage."""
        return self._starts[index]

    @property
    def length(self) -> int | None:
        """Number of steps; None: endless."""
        last = self.stages[-1].steps
        return None if last is None else self._starts[-1] + last

    @property
    def warnings(self) -> list[str]:
        """Warnings about stages with settings that the paper advises against."""
        return [
            f"stages[{index}]: {learner.updates_per_batch} updates a batch speed up the collapse of entropy "
            "and may make its controller unstable (Skywork-OR1); learner.updates_per_batch=1 is the recipe"
            for index, learner in enumerate(self._learners)
            if learner.updates_per_batch > 1
        ]

    @property
    def needs_reference(self) -> bool:
        """Whether any stage has a KL term."""
        return any(learner.kl > 0 for learner in self._learners)

    def check(self, prompt_limit: int, positions: int | None) -> None:
        """Raise ValueError for a stage that exceeds the model's positions or has too few prompts a step."""
        for index, stage in enumerate(self.stages):
            if positions is not None and prompt_limit + stage.response_limit > positions:
                raise ValueError(
                    f"stages[{index}].response_limit: {stage.response_limit} plus prompts of up to "
                    f"{prompt_limit} tokens do not fit the model's {positions} positions"
                )
            learner = self._learners[index]
            if learner.updates_per_batch > stage.prompts_per_step:
                raise ValueError(
                    f"stages[{index}]: {learner.updates_per_batch} updates_per_batch need at least as many "
                    f"prompts_per_step, got {stage.prompts_per_step}"
                )


def _resolve(stage: StageConfig, learner: LearnerConfig) -> LearnerConfig:
    """Return the learner's settings with the stage's own in their place."""
    own = {
        "updates_per_batch": stage.updates_per_batch,
        "lr": stage.lr,
        "clip_low": stage.clip_low,
        "clip_high": stage.clip_high,
        "kl": stage.kl,
    }
    entropy = {"target": stage.entropy_target, "delta": stage.entropy_delta, "cap": stage.entropy_cap}
    resolved = learner.entropy.model_copy(update=_given(entropy))
    return learner.model_copy(update={**_given(own), "entropy": resolved})


def _given(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}
