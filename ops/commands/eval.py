"""``magicrl eval``: avg@k and pass@k of a model folder or of a run's checkpoint on any dataset."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from ops.console import stdout

if TYPE_CHECKING:
    from actors.evaluator import Evaluation

app = typer.Typer()


@app.command(name="eval")
def evaluate(
    model: Annotated[str, typer.Argument(help="A model folder, or the name or folder of a run.")],
    dataset: Annotated[Path, typer.Argument(help="Problems: parquet or JSON lines, as for training.")],
    k: Annotated[int, typer.Option("--k", min=1, help="Responses sampled for each problem.")] = 8,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many problems.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest response in tokens.")] = 32_768,
    temperature: Annotated[float, typer.Option(min=0.0, help="Of sampling.")] = 1.0,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="Of sampling.")] = 1.0,
    step: Annotated[int | None, typer.Option(help="Of a run: the checkpoint of this step.")] = None,
    instruction: Annotated[str, typer.Option(help="Appended to each problem.")] = "",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    kv_cache_gib: Annotated[float | None, typer.Option(help="Size of the key/value cache.")] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Responses decoded at once.")] = 64,
    seed: Annotated[int, typer.Option(help="Of the sampler.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Sample k responses for each problem and grade them: avg@k, pass@k, truncation, verdicts."""
    from actors.config import VllmConfig
    from actors.engine import SamplingLimits
    from actors.evaluator import Evaluator
    from buffer.dataset import read_dataset
    from buffer.row import Columns

    problems = read_dataset(dataset, Columns(instruction=instruction))
    rows = list(problems)[:limit]
    config = VllmConfig.model_validate(
        {"dtype": dtype, "kv_cache_gib": kv_cache_gib, "max_num_seqs": at_once, "enforce_eager": True}
    )
    limits = SamplingLimits(max_tokens=max_tokens, temperature=temperature, top_p=top_p)
    with _model_folder(model, step) as folder, Progress(disable=as_json) as progress:
        task = progress.add_task(f"{len(rows)} problems, {k} responses each", total=len(rows))
        evaluator = Evaluator(folder, config, seed=seed)
        result = asyncio.run(evaluator.run(rows, k, limits, lambda: progress.advance(task)))
    if as_json:
        typer.echo(json.dumps(asdict(result)))
        return
    stdout().print(_text(result))


@contextmanager
def _model_folder(model: str, step: int | None) -> Iterator[Path]:
    """The folder itself, or a run's checkpoint exported for the time of the evaluation."""
    if (Path(model) / "tokenizer_config.json").exists() or (Path(model) / "tokenizer.json").exists():
        yield Path(model)
        return
    from ops.commands.export import export

    with tempfile.TemporaryDirectory(prefix="magicrl-eval-") as parent:
        export(model, Path(parent) / "model", step)
        yield Path(parent) / "model"


def _text(result: Evaluation) -> str:
    passed = ", ".join(f"pass@{j} {share:.3f}" for j, share in result.passed.items())
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in result.verdicts.items())
    return (
        f"avg@{result.k} {result.avg:.3f} (standard error at most {result.standard_error:.3f}, "
        f"{result.problems} problems)\n{passed}\n{verdicts}\n"
        f"mean length {result.tokens:.0f} tokens, {result.truncated:.1%} cut by the limit"
    )
