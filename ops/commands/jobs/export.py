"""``magicrl export``: write a checkpoint as a plain Hugging Face folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ops.config.schema import ConfigError
from ops.display.console import stderr
from ops.records.runs import find_run

app = typer.Typer()


@app.command()
def export(
    run: Annotated[str, typer.Argument(help="A run's name or folder.")],
    out: Annotated[Path, typer.Argument(help="New folder to write.")],
    step: Annotated[int | None, typer.Option(help="Step of the checkpoint; else the newest.")] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="Data type: float32, bfloat16 or float16; else that of the model's config."),
    ] = None,
) -> None:
    """Write a checkpoint's weights, config and tokenizer to a folder that transformers and vLLM load."""
    from learner.checkpoint.checkpoint import CheckpointError, Checkpoints
    from learner.config import CheckpointConfig

    if dtype not in (None, "float32", "bfloat16", "float16"):
        raise ConfigError(f"--dtype {dtype}: must be float32, bfloat16 or float16")
    folder = find_run(run)
    checkpoints = Checkpoints(folder.checkpoints, CheckpointConfig())
    try:
        checkpoint = checkpoints.newest() if step is None else checkpoints.at(step)
        if checkpoint is None:
            raise ConfigError(f"{folder.path}: no complete checkpoint yet")
        version = checkpoint.version
        stderr().print(f"exporting step {version.step} (lineage {version.lineage})")
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # else DeepSpeed looks for one when it is imported
        from learner.checkpoint.export import export_checkpoint

        count = export_checkpoint(checkpoint, folder.model, out, dtype)
    except CheckpointError as error:
        raise ConfigError(str(error)) from error
    stderr().print(f"{count / 1e6:.1f} M parameters in {out}")
