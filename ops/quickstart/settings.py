"""What the cold start is made with; part of the key under which its model is cached."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ColdStart:
    """Supervised training until a look finds ``lowest <= accuracy <= highest`` and ``entropy`` at most so.

    A look follows every ``look_every`` steps whose mean loss is at most ``look_loss`` (nats per token).
    samples: responses a look. returns: how often one seed may go back a look. seeds: how many are tried.
    """

    seed: int = 0
    seeds: int = 5
    learning_rate: float = 3e-3
    warmup: int = 30
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    batch: int = 32
    look_loss: float = 0.15
    look_every: int = 10
    samples: int = 512
    lowest: float = 0.25
    highest: float = 0.36  # a start at 0.45 learns as well, but leaves less to gain and to show
    entropy: float = 0.12
    returns: int = 4
    max_steps: int = 500
