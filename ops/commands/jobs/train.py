"""``magicrl train`` and ``magicrl quickstart``: start or continue a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ops.config.loader import load_config
from ops.records.folder import Resume, RunFolder
from ops.records.runs import detach

INTERRUPTED = 130
"""Exit status of a run that a signal ended, as a shell reports it; `--resume` continues such a run."""

app = typer.Typer()


_RESUME = typer.Option(
    "--resume",
    metavar="[=auto]",
    help="Continue from the newest complete checkpoint. --resume=auto starts from scratch if there is none.",
    show_default=False,
)


@app.command()
def train(
    config: Annotated[str, typer.Argument(help="A YAML file or the name of a shipped recipe.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes, like learner.lr=2e-6.")] = None,
    resume: Annotated[str, _RESUME] = "never",
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Fence a learner of this run that is still alive.")
    ] = False,
    detached: Annotated[bool, typer.Option("--detach", help="Run without this terminal.")] = False,
) -> None:
    """Train a model on problems whose answers can be checked."""
    loaded = load_config(config, overrides or ())
    if detached:
        process = detach(
            loaded.run.path, ["train", config, *(overrides or ()), f"--resume={_resume(resume)}"]
        )
        typer.echo(f"{loaded.run.path}: process {process}; magicrl stop {loaded.run.name} ends it")
        return
    from ops.run.run import run  # loads the other rooms; mistakes in the configuration are found before

    _finish(run(loaded, _resume(resume), take_over))


@app.command()
def quickstart(
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes, like run.steps=20.")] = None,
    resume: Annotated[str, _RESUME] = "never",
    cache: Annotated[Path, typer.Option(help="Folder of the tiny model and its problems.")] = Path(".cache"),
) -> None:
    """Train a tiny model on this machine: every part real, only small."""
    load_config("quickstart", overrides or ())  # mistakes are found before the minute that the model takes
    from ops.quickstart.model import build_model
    from ops.quickstart.problems import write_problems
    from ops.run.run import run

    typer.echo("the tiny model and its problems (made once, about a minute)", err=True)
    model = build_model(cache / "quickstart", progress=lambda line: typer.echo(f"  {line}", err=True))
    train_file, test_file = write_problems(cache / "quickstart")
    made = [f"model.path={model}", f"data.train=[{train_file}]", f"data.test={test_file}"]
    config = load_config("quickstart", [*made, *(overrides or ())])
    choice = _resume(resume)
    if choice == "never" and (earlier := RunFolder(config.run.path).set_aside()):
        typer.echo(f"the earlier run is now {earlier}", err=True)
    _finish(run(config, choice))


def _finish(summary: dict[str, Any]) -> None:
    if summary["outcome"] == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _resume(text: str) -> Resume:
    match text:
        case "never" | "require" | "auto":
            return text
    raise typer.BadParameter("must be plain --resume or --resume=auto")
