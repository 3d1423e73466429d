"""Convert a checkpoint for another number of ranks, by DeepSpeed's universal checkpoints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from learner.checkpoint.checkpoint import CheckpointError

TAG = "state"
"""Folder inside a checkpoint's ``engine/`` that DeepSpeed reads and writes."""

CONVERTER = "deepspeed.checkpoint.ds_to_universal"


def is_universal(engine: Path) -> bool:
    """Return whether an engine folder has one file per parameter, readable by any number of ranks."""
    return (engine / TAG / "zero").is_dir()


def conversion(engine: Path, target: Path) -> list[str]:
    """Return the module of DeepSpeed's converter and its arguments."""
    folders = ["--input_folder", str(engine / TAG), "--output_folder", str(target / TAG)]
    return [CONVERTER, "--inject_missing_state", *folders]


def to_universal(engine: Path, target: Path, timeout: float) -> Path:
    """Convert an ``engine/`` folder into ``target`` (replaced if it exists); return ``target``.

    Runs in a subprocess, so that this one needs no torch. Raises CheckpointError with the converter's output.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    try:
        done = subprocess.run(
            [sys.executable, "-m", *conversion(engine, target)],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=os.environ | {"DS_ACCELERATOR": "cpu"},
        )
    except subprocess.TimeoutExpired as error:
        raise CheckpointError(f"{engine}: no universal checkpoint after {timeout:.0f} s") from error
    if done.returncode != 0:
        raise CheckpointError(f"{engine}: conversion failed: {(done.stderr or done.stdout).strip()[-2000:]}")
    return target
