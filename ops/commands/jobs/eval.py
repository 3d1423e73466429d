"""``magicrl eval``: avg@k and pass@k of a model folder or of a run's checkpoint on any dataset."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from rich.progress import Progress

from actors.config import VllmConfig
from ops.commands.jobs.export import export
from ops.config.hub import model_folder
from ops.config.loader import load_config
from ops.config.schema import ConfigError
from ops.display.console import result_only, stderr, stdout
from ops.records.runs import find_run

if TYPE_CHECKING:
    from actors.sampling.benchmark import Benchmark, Evaluation
    from actors.sampling.rendering import PromptFormat
    from ops.evaluation.target import EvalTarget

app = typer.Typer()

DTYPES: tuple[str, ...] = get_args(VllmConfig.model_fields["dtype"].annotation)


@app.command(name="eval")
def evaluate(
    model: Annotated[
        str,
        typer.Argument(help="A model folder, an id of the Hugging Face Hub, or the name or folder of a run."),
    ],
    dataset: Annotated[Path, typer.Argument(help="Problems: parquet or JSON lines, as for training.")],
    k: Annotated[int, typer.Option("--k", min=1, help="Responses sampled for each problem.")] = 8,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Take only this many problems, from the start.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest response in tokens; else the run's, or 32768.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="Sampling temperature; else the run's, or 1.")
    ] = None,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="Sampling top-p.")] = 1.0,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a model of the Hub.")] = None,
    step: Annotated[int | None, typer.Option(help="Step of the run's checkpoint; else the newest.")] = None,
    instruction: Annotated[
        str | None, typer.Option(help="Text appended to each problem; else the run's, or none.")
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option(help="File with a chat template; else the run's, or the model's own.")
    ] = None,
    chat_template_kwargs: Annotated[
        str | None, typer.Option(help="Its arguments as JSON, like '{\"enable_thinking\": false}'.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help=f"Data type, {', '.join(DTYPES)}; else the run's, or the model's.")
    ] = None,
    kv_cache_gib: Annotated[float | None, typer.Option(min=0.01, help="Size of the key/value cache.")] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="Responses decoded at once; else the run's, or 64.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampler.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Sample k responses for each problem and grade them: avg@k, pass@k, truncation, verdicts.

    A run's checkpoint is sampled and graded as the run's config asks, unless an option here overrides it.
    """
    if dtype not in (None, *DTYPES):
        raise ConfigError(f"--dtype {dtype}: must be one of {', '.join(DTYPES)}")
    from actors.sampling.benchmark import Benchmark
    from buffer.prompts.dataset import read_dataset

    _quiet()
    engine = {"dtype": dtype, "kv_cache_gib": kv_cache_gib, "max_num_seqs": at_once}
    sampling = {"max_tokens": max_tokens, "temperature": temperature, "top_p": top_p}
    model = str(model_folder(Path(model), revision))
    usual = default_target(model)
    target = replace(
        usual,
        engine=usual.engine.model_copy(update=_given(engine)),
        limits=replace(usual.limits, **_given(sampling)),
        columns=replace(usual.columns, **_given({"instruction": instruction})),
        prompt_format=_prompt_format(usual.prompt_format, chat_template, chat_template_kwargs),
    )
    rows = tuple(islice(read_dataset(dataset, target.columns), limit))
    benchmark = Benchmark(dataset.stem, rows, k, target.limits)
    with result_only(), policy_folder(model, step) as folder:
        result = _evaluate(folder, target, benchmark, seed)
    if as_json:
        typer.echo(json.dumps(asdict(result)))
        return
    stdout().print(_text(result))


def _evaluate(folder: Path, target: EvalTarget, benchmark: Benchmark, seed: int) -> Evaluation:
    from actors.engines.base import EngineBroken
    from actors.sampling.evaluator import Evaluator
    from ops.run.run import RunFailed

    evaluator = Evaluator(folder, target.engine, target.rewards, target.prompt_format, target.thinking, seed)
    with Progress(console=stderr()) as progress:
        text = f"{len(benchmark.rows)} problems, {benchmark.samples} responses each"
        task = progress.add_task(text, total=len(benchmark.rows))
        try:
            return asyncio.run(evaluator.run(benchmark, lambda: progress.advance(task)))
        except (EngineBroken, ValueError) as error:
            raise RunFailed(str(error)) from error


def _quiet() -> None:
    """Keep vLLM and torch to errors, unless the environment asks for more."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")  # of vLLM's processes


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _prompt_format(usual: PromptFormat, template: Path | None, arguments: str | None) -> PromptFormat:
    from ops.config.derived import template_text

    text = None if template is None else template_text(template)
    try:
        parsed = None if arguments is None else dict(json.loads(arguments))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"--chat-template-kwargs {arguments}: must be a JSON object") from error
    return usual.model_copy(update=_given({"chat_template": text, "chat_template_kwargs": parsed}))


def default_target(model: str) -> EvalTarget:
    """Return how a model folder or a run is sampled without options. Raises ConfigError."""
    from ops.evaluation.target import is_model, model_target, run_target

    if is_model(Path(model)):
        from torch.cuda import is_available

        return model_target(gpu=is_available())
    return run_target(load_config(find_run(model).config))


@contextmanager
def policy_folder(model: str, step: int | None) -> Iterator[Path]:
    """Yield the model folder; for a run, its checkpoint, exported for the length of the block."""
    from ops.evaluation.target import is_model

    if is_model(Path(model)):
        yield Path(model)
        return
    with tempfile.TemporaryDirectory(prefix="magicrl-eval-") as parent:
        export(model, Path(parent) / "model", step)
        yield Path(parent) / "model"


def _text(result: Evaluation) -> str:
    passed = ", ".join(f"pass@{j} {share:.3f}" for j, share in result.passed.items())
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in result.verdicts.items())
    left_out = f"\n{result.left_out} problems left out: too long for the model" if result.left_out else ""
    return (
        f"avg@{result.k} {result.avg:.3f} (standard error at most {result.standard_error:.3f}, "
        f"{result.problems} problems)\n{passed}\n{verdicts}\n"
        f"mean length {result.tokens:.0f} tokens, {result.truncated:.1%} cut by the limit{left_out}"
    )
