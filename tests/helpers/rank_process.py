"""Learner ranks as plain processes: ``python -m helpers.rank_process FOLDER``.

FOLDER/rounds.json is a list of rounds; what is in one runs side by side. ``worlds``: by number of ranks,
the cases to run on them, one after the other. ``convert``: an engine folder, the universal checkpoint to
make of it, and whether by the learner's own conversion process.

A case: a name, LearnerConfig fields, the seeds of the batches to train on (one step each, numbered from
``first``), those of them that are ``spoiled``, optionally ``save`` after so many steps, ``restore`` before
the first, and ``spare_bytes`` of memory for an update. Its results are in FOLDER/RANKS-NAME.npz.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers.forked import exit_status, fork
from helpers.limits import return_freed_memory

if TYPE_CHECKING:
    from learner.compute.rank import Rank


def main(folder: Path) -> int:
    os.environ["DS_ACCELERATOR"] = "cpu"

    import helpers.rank_case  # noqa: F401 - before the fork
    import learner.checkpoint.hf_files
    import learner.compute.rank

    learner.checkpoint.hf_files.SHARD_BYTES = 1  # a file per tensor: a disk is full in the middle of a gather

    status = 0
    for number, round_ in enumerate(json.loads((folder / "rounds.json").read_text())):
        children = [fork(convert, *pair) for pair in round_.get("convert", [])]
        for world, rows in round_.get("worlds", {}).items():
            port = folder / f"port-{number}-{world}"
            children += [fork(run_rank, rank, int(world), rows, folder, port) for rank in range(int(world))]
        status |= max(exit_status(child) for child in children)
    return status


def convert(engine: str, target: str, here: bool) -> None:
    """Convert a checkpoint by the learner, or ``here``, as it does but without importing everything again."""
    from deepspeed.checkpoint import ds_to_universal

    from learner.checkpoint.reshard import conversion, to_universal

    if not here:
        to_universal(Path(engine), Path(target), 200)
        return
    Path(target).mkdir()
    sys.argv = conversion(Path(engine), Path(target))
    ds_to_universal.main(ds_to_universal.parse_arguments())


def run_rank(number: int, world: int, rows: list[dict[str, Any]], folder: Path, port: Path) -> None:
    from helpers.rank_case import RankCase

    os.environ.update(RANK=str(number), LOCAL_RANK="0", WORLD_SIZE=str(world))
    return_freed_memory()  # else a case has what the cases before it freed, and needs no more memory
    address: tuple[str, int] | None = None
    for row in rows:
        out = folder / f"{world}-{row['name']}"
        case = RankCase(row, number, world, out)
        address = address or meet(case.rank, number, port)
        case.join(address)
        case.train()
        case.write(out.with_suffix(".npz"))


def meet(rank: Rank, number: int, path: Path) -> tuple[str, int]:
    """Return where the ranks meet: rank 0 writes its port to ``path``, the others read it."""
    deadline = time.monotonic() + 120
    if number == 0:
        path.with_suffix(".new").write_text(str(rank.listen("127.0.0.1")))
        path.with_suffix(".new").rename(path)
    while not path.exists():
        assert time.monotonic() < deadline, "rank 0 did not open a port in 120 s"
        time.sleep(0.05)
    return "127.0.0.1", int(path.read_text())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
