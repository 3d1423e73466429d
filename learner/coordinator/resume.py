"""Compare the settings of a checkpoint with those of a resume. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from learner.config import CHANGEABLE, LearnerConfig
from learner.memory import ModelShape


class ResumeRefused(Exception):
    """A changed setting that the checkpoint's files depend on; the message gives its name and old value."""


def check_resume(
    state: Mapping[str, Any], config: LearnerConfig, shape: ModelShape
) -> dict[str, tuple[Any, Any]]:
    """Return the learner's settings that a resume changes: name -> (saved, new).

    state: the checkpoint's. shape: of the model in use now. Raises ResumeRefused for another model and for
    fixed settings.
    """
    model = state.get("model", asdict(shape))
    if model != asdict(shape):
        now = ", ".join(
            f"{name} {value}" for name, value in asdict(shape).items() if model.get(name) != value
        )
        then = ", ".join(
            f"{name} {value}" for name, value in model.items() if asdict(shape).get(name) != value
        )
        raise ResumeRefused(f"model.path: this checkpoint is of another model ({then}; the folder has {now})")
    return changed_settings(state["config"], config)


def changed_settings(saved: Mapping[str, Any], config: LearnerConfig) -> dict[str, tuple[Any, Any]]:
    """Return the fields of ``learner`` that differ from the checkpoint's: name -> (saved, new).

    saved: ``model_dump(mode="json")`` of the saved run. Raises ResumeRefused for fields outside CHANGEABLE.
    """
    now = config.model_dump(mode="json")
    changes = {name: (saved.get(name), value) for name, value in now.items() if saved.get(name) != value}
    fixed = {name: old for name, (old, _) in changes.items() if name not in CHANGEABLE}
    if fixed:
        wanted = ", ".join(f"learner.{name}={old}" for name, old in sorted(fixed.items()))
        raise ResumeRefused(f"this checkpoint can only be resumed with {wanted}")
    return changes
