"""The ``magicrl`` command. Importing this module loads no torch, vllm or ray; commands load what they run."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated, Optional

import click
import typer
from rich.console import Console

from ops.commands import config, train
from ops.config import ConfigError

USAGE_ERROR = 2

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
app.add_typer(train.app)
app.add_typer(config.app, name="config")


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
    """Run the command line. An error that a person can mend is one line and exit status 2."""
    try:
        status = app(_arguments(sys.argv[1:]), standalone_mode=False)
    except click.exceptions.Abort:
        status = 130
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except _mendable() as error:
        Console(stderr=True).print(f"[bold red]error[/] {error}", highlight=False, soft_wrap=True)
        status = USAGE_ERROR
    sys.exit(status if isinstance(status, int) else 0)


def _arguments(argv: list[str]) -> list[str]:
    """A bare ``--resume`` means "the newest checkpoint must be there"; click has no optional values."""
    return ["--resume=require" if argument == "--resume" else argument for argument in argv]


def _mendable() -> tuple[type[Exception], ...]:
    """Errors of any room that name their own fix; a room not loaded cannot have raised one."""
    named = (("buffer.dataset", "DatasetError"), ("buffer.server", "RedisUnusable"), ("ops.run", "RunFailed"))
    loaded = ((sys.modules.get(module), name) for module, name in named)
    return (ConfigError, *(getattr(module, name) for module, name in loaded if module is not None))
