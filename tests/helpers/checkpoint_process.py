"""A run's folder as if training MODEL led to WEIGHTS.

``python -m helpers.checkpoint_process MODEL WEIGHTS RUN``
RUN gets a config and one checkpoint, of lineage 1 and step 3. In a process of its own: DeepSpeed leaves its
process group behind.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


def main(model: Path, weights: Path, run: Path) -> None:
    os.environ.update(DS_ACCELERATOR="cpu", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    from buffer.records.versions import PolicyVersion
    from learner.checkpoint.checkpoint import Checkpoints
    from learner.compute.rank import Rank
    from learner.config import CheckpointConfig, LearnerConfig
    from learner.rank_spec import RankSpec

    unused: Any = None
    rank = Rank(RankSpec(weights, LearnerConfig(), lambda: unused, lambda: unused), 0, 1)
    rank.join("127.0.0.1", rank.listen("127.0.0.1"))
    checkpoints, version = Checkpoints(run / "checkpoints", CheckpointConfig()), PolicyVersion(1, 3)
    with checkpoints.new(version) as checkpoint:
        rank.save(checkpoint.engine)
        checkpoint.write_state({})
    (run / "config.yaml").write_text(f"model: {{path: {model}}}\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
