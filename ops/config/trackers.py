"""Settings of the experiment trackers."""

from __future__ import annotations

from typing import Literal

from rewards.settings import Settings


class WandbConfig(Settings):
    """Weights & Biases. Needs `pip install 'magicrl[wandb]'` and WANDB_API_KEY in the environment."""

    project: str = "magicrl"
    """Project of the run."""
    entity: str | None = None
    """Team or user; None: the account's default."""
    mode: Literal["online", "offline"] = "online"
    """online: sent during the run. offline: written into the run's folder, to send with `wandb sync`."""


class MlflowConfig(Settings):
    """MLflow. Needs `pip install 'magicrl[mlflow]'`."""

    uri: str | None = None
    """Tracking server or database; None: MLFLOW_TRACKING_URI of the environment."""
    experiment: str = "magicrl"
    """Experiment of the run."""


class TrackersConfig(Settings):
    """Experiment trackers, besides steps.jsonl and Prometheus. None of them can stop a run."""

    tensorboard: bool = True
    """Whether to write event files into <run>/tensorboard, for `tensorboard --logdir runs`."""
    wandb: WandbConfig | None = None
    """Weights & Biases; None: not used."""
    mlflow: MlflowConfig | None = None
    """MLflow; None: not used."""
