"""Settings of the experiment trackers."""

from __future__ import annotations

from typing import Literal

from rewards.settings import Settings


class WandbConfig(Settings):
    """Weights & Biases; needs `pip install 'magicrl[wandb]'` and WANDB_API_KEY in the environment."""

    project: str = "magicrl"
    """Project that the run appears in."""
    entity: str | None = None
    """Team or user; none: the account's default."""
    mode: Literal["online", "offline"] = "online"
    """offline: written into the run's folder, sent later with `wandb sync`."""


class MlflowConfig(Settings):
    """MLflow; needs `pip install 'magicrl[mlflow]'`."""

    uri: str | None = None
    """Tracking server or database; none: MLFLOW_TRACKING_URI of the environment."""
    experiment: str = "magicrl"
    """Experiment that the run appears in."""


class TrackersConfig(Settings):
    """Where the numbers of each step go besides steps.jsonl and Prometheus. No tracker can stop a run."""

    tensorboard: bool = True
    """Event files in <run>/tensorboard; look at them with `tensorboard --logdir runs`."""
    wandb: WandbConfig | None = None
    """None: not used."""
    mlflow: MlflowConfig | None = None
    """None: not used."""
