"""The documentation agrees with the code: commands, settings, tables, paths and links."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
import yaml

from buffer.rules.books import DROP_REASONS
from helpers import documented_commands as documented
from helpers.dashboards import EMPTY_WITHOUT, all_panels
from helpers.documents import (
    DOCUMENTS,
    LANGUAGES,
    anchors,
    blocks,
    code,
    commands,
    links,
    prose,
    spans,
    table,
    text_of,
)
from helpers.minimal_config import MINIMAL
from helpers.running import REPOSITORY
from ops.cli import FAILED, USAGE_ERROR, app
from ops.commands.jobs.train import INTERRUPTED
from ops.config.loader import load_config
from ops.config.schema import Config
from ops.telemetry.alerts import RULES

BUFFER = REPOSITORY / "docs/buffer.md"
GUIDE = REPOSITORY / "ops/deploy/guide.md"
OPERATIONS = REPOSITORY / "docs/operations.md"
COMMANDS = commands()
MAGICRL: Any = typer.main.get_command(app)
ROOMS = ("actors", "buffer", "learner", "ops", "rewards")
SECTIONS = "|".join(Config.model_fields)
SOURCES = (".lua", ".md", ".py", ".sh", ".yaml", ".yml")
FILE = re.compile(r"(?<![\w./<>{}-])(?:[a-z_]+/)+[a-z_]+\.(?:lua|md|py)\b")
"""A file in the text of a source, named from the repository, its room or its folder."""
PATH = re.compile(rf"(?<![\w./-])(?:{'|'.join(ROOMS)}|tests|docs)/[\w./-]*\w(?:/(?!\w)|\b)")


def arguments_of(program: str) -> list[list[str]]:
    """Return the arguments of the documented commands of one program."""
    split = [shlex.split(command) for command in sorted(COMMANDS)]
    return [words[1:] for words in split if words[0] == program]


def is_name(words: list[str]) -> bool:
    """Return whether the words only name a command, as running text does: `magicrl buffer acl`."""
    command = MAGICRL
    for word in words:
        command = getattr(command, "commands", {}).get(word)
    return command is not None


def test_every_command_is_run_somewhere() -> None:
    run = {documented.START, documented.STOP, *documented.LIVE, *documented.AFTER, *documented.ELSEWHERE}
    names = {shlex.join(["magicrl", *words]) for words in arguments_of("magicrl") if is_name(words)}
    checked = {command for command in COMMANDS if re.match(r"make |python |pip ", command)}
    assert COMMANDS - run - checked - names == set()
    assert run - COMMANDS == set()


def test_the_tests_that_run_commands_exist() -> None:
    nodes = sorted({f"tests/{node}" for node in documented.ELSEWHERE.values()})
    collect = ["-m", "pytest", "--collect-only", "-q", "-o", "addopts=--import-mode=importlib"]
    command = [sys.executable, *collect, *nodes]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    "words", [words for words in arguments_of("magicrl") if not is_name(words)], ids=shlex.join
)
def test_magicrl_takes_the_arguments(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", "token")
    command, rest = MAGICRL, iter(words)
    while hasattr(command, "commands"):
        command = command.commands[next(rest)]
    # A bare --resume gets its value before the command line is parsed.
    arguments = ["--resume=require" if word == "--resume" else word for word in rest]
    if overrides := command.make_context("", arguments).params.get("overrides"):
        load_config("quickstart", overrides)


@pytest.mark.parametrize("words", arguments_of("make"), ids=shlex.join)
def test_make_knows_the_target(words: list[str]) -> None:
    subprocess.run(["make", "--dry-run", *words], cwd=REPOSITORY, capture_output=True, timeout=60, check=True)


@pytest.mark.parametrize("words", arguments_of("python"), ids=shlex.join)
def test_pytest_finds_the_tests(words: list[str]) -> None:
    assert words[:2] == ["-m", "pytest"]
    for word in words[2:]:
        assert "/" not in word or (REPOSITORY / word).exists(), word


@pytest.mark.parametrize("words", arguments_of("pip"), ids=shlex.join)
def test_pip_finds_the_extra(words: list[str]) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extra = re.fullmatch(rf"{project['name']}\[(\w+)\]", words[-1])
    assert extra is not None
    assert extra[1] in project["optional-dependencies"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_code_is_in_fenced_blocks_of_a_known_language(document: Path) -> None:
    assert {language for language, _ in blocks(document)} <= {*LANGUAGES}
    assert not re.search(r"^ {4}\w", prose(document), re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_and_links_lead_somewhere(document: Path) -> None:
    for path in PATH.findall(" ".join(spans(document))):
        assert (REPOSITORY / path).exists(), path
    for target in links(document):
        path, _, anchor = target.partition("#")
        file = (document.parent / path) if path else document
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("room", ROOMS)
def test_files_that_the_code_names_exist(room: str) -> None:
    for source in (path for path in (REPOSITORY / room).rglob("*") if path.suffix in SOURCES):
        bases = (REPOSITORY, REPOSITORY / room, source.parent)
        for name in FILE.findall(text_of(source)):
            assert any((base / name).exists() for base in bases), f"{source}: {name}"


@pytest.mark.parametrize("text", code("yaml"))
def test_settings_are_accepted(text: str) -> None:
    Config.model_validate(MINIMAL | yaml.safe_load(text))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_settings_named_in_the_text_exist(document: Path) -> None:
    for span in spans(document):
        if re.fullmatch(rf"(?:{SECTIONS})(?:\.(?!py$)[a-z_]+)+(?:[:=].*)?", span):
            assert_setting(re.split("[:=]", span)[0])


def assert_setting(name: str) -> None:
    """Follow the dotted name through the models of the configuration; a free mapping accepts any name."""
    model: Any = Config
    for part in name.split("."):
        if not hasattr(model, "model_fields"):
            return
        assert part in model.model_fields, name
        annotation = model.model_fields[part].annotation
        kinds = get_args(annotation) or (annotation,)
        model = next((kind for kind in kinds if hasattr(kind, "model_fields")), annotation)


def test_the_readme_is_short() -> None:
    assert len(text_of(REPOSITORY / "README.md").splitlines()) <= 150


def test_exit_statuses_are_those_of_the_command() -> None:
    listed = {int(status) for status, _ in table(REPOSITORY / "README.md", "exit status | meaning")}
    assert listed == {0, USAGE_ERROR, FAILED, INTERRUPTED}


def test_the_guide_names_every_file_of_a_deployment() -> None:
    files = {str(path.relative_to(GUIDE.parent)) for path in GUIDE.parent.rglob("*") if path.is_file()}
    assert files - {GUIDE.name} <= {*spans(GUIDE)}


def test_dashboards_and_their_panels_are_counted() -> None:
    listed = {name: int(panels) for name, panels, _ in table(OPERATIONS, "dashboard | panels | answers")}
    assert listed == Counter(dashboard for dashboard, _ in all_panels())


def test_alerts_are_those_of_the_rules() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    listed = table(OPERATIONS, "alert | severity | for | fires when")
    assert sorted(row[:3] for row in listed) == sorted(
        [rule["alert"], rule["labels"]["severity"], rule.get("for", "")] for rule in rules
    )


def test_reasons_of_drops_are_those_of_the_books() -> None:
    reasons = [reason for names, _ in table(BUFFER, "dropped as | because") for reason in names.split(", ")]
    assert sorted(reasons) == sorted(DROP_REASONS)


def test_panels_that_need_more_than_a_cpu_are_named() -> None:
    paragraph = text_of(OPERATIONS).partition("Panels without data on a CPU")[2].partition("\n\n")[0]
    for title, _ in EMPTY_WITHOUT:
        assert title.removeprefix("Learner: ") in " ".join(paragraph.split()), title
