"""The ``magicrl`` command. Importing this loads no torch, vllm or ray: commands import what they run."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated, NoReturn, Optional

import typer
from rich.markup import escape

from ops.commands.jobs import bench, config, data, doctor, eval, export, generator, score, train
from ops.commands.observe import buffer, dashboards, fleet, rollouts, runs, top
from ops.config.schema import ConfigError
from ops.display.console import stderr

USAGE_ERROR = 2
"""Exit status for a mistake in the command, the configuration or the data: do not retry unchanged."""

FAILED = 3
"""Exit status of a run of which a part died: starting it again with --resume=auto makes sense."""

app = typer.Typer(
    name="magicrl",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Asynchronous reinforcement learning of reasoning models with the MAGIC recipe.

    Start with `magicrl quickstart`: it trains a tiny model on this machine in a few minutes.
    Then `magicrl config show quickstart` prints every setting with its meaning, and
    `magicrl train my_run.yaml` trains your model on your problems.""",
)
for group, name in ((config, "config"), (data, "data"), (buffer, "buffer"), (dashboards, "dashboards")):
    app.add_typer(group.app, name=name)
for single in (train, top, runs, rollouts, fleet, generator, eval, score, export, doctor, bench):
    app.add_typer(single.app)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"magicrl {metadata.version('magicrl')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        Optional[bool],  # noqa: UP045 - typer reads the annotation
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = None,
) -> None:
    del version


def main() -> None:
    """Run the command line. Errors that name their own fix are printed as one line, with exit status 2."""
    try:
        app(_arguments(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(train.INTERRUPTED)
    except _user_errors() as error:
        _end(error, USAGE_ERROR)
    except _failures() as error:
        _end(error, FAILED)


def _arguments(argv: list[str]) -> list[str]:
    """Replace a bare ``--resume``, which requires a checkpoint: click has no options with optional values."""
    return ["--resume=require" if argument == "--resume" else argument for argument in argv]


def _user_errors() -> tuple[type[Exception], ...]:
    """Return the errors that name their own fix."""
    return (
        ConfigError,
        *_loaded(("buffer.prompts.dataset", "DatasetError"), ("buffer.backend.connection", "RedisUnusable")),
    )


def _failures() -> tuple[type[Exception], ...]:
    """Return the errors of a run that had started."""
    return _loaded(("ops.run.run", "RunFailed"))


def _loaded(*names: tuple[str, str]) -> tuple[type[Exception], ...]:
    """Return the classes of modules that are loaded; the others cannot have raised anything."""
    return tuple(getattr(sys.modules[module], name) for module, name in names if module in sys.modules)


def _end(error: Exception, status: int) -> NoReturn:
    stderr().print("[bold red]error[/]", escape(str(error)))
    sys.exit(status)


if __name__ == "__main__":
    main()
