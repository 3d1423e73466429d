"""Settings of the cold start; part of the key under which its model is cached."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ColdStart:
    """Supervised training until ``lowest <= accuracy <= highest`` with an entropy of at most ``entropy``.

    The model is evaluated after every ``evaluate_every`` steps whose mean loss is at most ``evaluate_below``
    nats per token. samples: responses for an evaluation. returns: how often a seed may undo an overshoot.
    seeds: number of seeds tried.
    """

    seed: int = 0
    seeds: int = 5
    learning_rate: float = 3e-3
    warmup: int = 30
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    batch: int = 32
    evaluate_below: float = 0.15
    evaluate_every: int = 10
    samples: int = 512
    lowest: float = 0.25
    highest: float = 0.36  # a start at 0.45 learns as well, but leaves less to gain and to show
    entropy: float = 0.12
    returns: int = 4
    max_steps: int = 500
