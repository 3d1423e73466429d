"""What a run samples: problems, how they are rendered, graded and selected, and the rules of each stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from actors.engines.base import SamplingLimits
from actors.sampling.group_sampler import Graders, Renderer
from buffer.config import TruncationMask
from buffer.prompts.row import Row
from buffer.rules.selection import Selection


class Rows(Protocol):
    """Dataset rows by index (``buffer.prompts.dataset.Dataset``)."""

    def __getitem__(self, index: int) -> Row:
        """Return the row; raises KeyError for one that was set aside."""
        ...


@dataclass(frozen=True, slots=True)
class StageRules:
    """How the groups of one stage are sampled and selected. Their size comes with the lease."""

    limits: SamplingLimits
    truncation_mask: TruncationMask = "none"


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of one run; ``stages`` by stage index."""

    dataset: Rows
    prompts: Renderer
    graders: Graders
    selection: Selection
    stages: Sequence[StageRules]
