"""One run's configuration: the rooms' own models, composed; read from YAML, overridden on the command line.

    config = load_config(Path("my_run.yaml"), ["learner.lr=2e-6", "run.name=second"])

Every field is documented where it is defined; ``magicrl config show`` prints them all.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from actors.config import ActorsConfig
from buffer.config import BufferConfig
from learner.config import LearnerConfig
from learner.stages import Schedule, StageConfig
from rewards.config import RewardsConfig

RECIPES = Path(__file__).parent / "recipes"


class ConfigError(Exception):
    """A configuration that cannot be used; the message names the field and the fix."""


class Section(BaseModel):
    """A part of the configuration: unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class RunConfig(Section):
    """What the run is called, where it keeps its files, and how long it lasts."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
    """Names the run's folder and its keys in Redis: letters, digits, '-' and '_'."""

    folder: Path = Path("runs")
    """Parent folder; the run lives in <folder>/<name>. On a cluster: a file system that all nodes share."""

    steps: int = Field(gt=0)
    """Learner steps to train for."""

    seed: int = 0
    """Seeds the order of prompts and the sampler."""

    @property
    def path(self) -> Path:
        """The run's own folder, absolute."""
        return (self.folder / self.name).absolute()


class ModelConfig(Section):
    """The model to train."""

    path: Path
    """A Hugging Face causal language model folder: config, weights and tokenizer."""


class DataConfig(Section):
    """Problems to train on and, if given, to measure accuracy on."""

    train: tuple[Path, ...] = Field(min_length=1)
    """Parquet or JSON-lines files, Skywork schema or question/answer columns; listed twice weighs double."""

    test: Path | None = None
    """Problems for the accuracy before and after training; None: not measured."""

    test_samples: int = Field(default=512, gt=0)
    """Responses sampled for each accuracy, spread evenly over the test problems."""

    question: str | None = None
    """Column that holds the question in plain files; None: the usual names are tried."""

    answer: str | None = None
    """Column that holds the reference answer in plain files; None: the usual names are tried."""

    instruction: str = ""
    """Appended to each problem, where it is not there already."""

    difficulty_model: str | None = None
    """Whose failures in `extra_info.model_difficulty` estimate a prompt's pass rate; None: no estimate."""

    max_prompt_tokens: int = Field(default=2048, gt=0)
    """Longer prompts are counted and left out (Skywork scripts: 2048)."""

    system_prompt: str | None = None
    """Put before each problem that has no system message of its own."""


class RayConfig(Section):
    """The Ray cluster that generators and learner ranks run on."""

    address: str | None = None
    """Of a running cluster ("auto" or host:port); None starts one on this machine for the run."""

    num_cpus: int | None = None
    """CPUs of the cluster started here; None: what the machine has, at least what the run asks for."""


class MetricsConfig(Section):
    """Where each process serves its Prometheus metrics."""

    host: str = "127.0.0.1"
    """Interface to listen on; loopback unless the network is trusted."""

    port: int = Field(default=0, ge=0, le=65535)
    """The driver's port; 0 takes a free one, as the other processes always do."""

    token_file: Path | None = None
    """File with the bearer token that a scraper must show; needed beyond loopback unless there is TLS."""

    certificate: Path | None = None
    """TLS certificate (PEM), with ``key``."""

    key: Path | None = None
    """TLS private key (PEM)."""


class Config(Section):
    """Everything a run needs, one section per room."""

    run: RunConfig
    model: ModelConfig
    data: DataConfig
    stages: tuple[StageConfig, ...] = Field(min_length=1)
    """Stretches of training with one context length each, in order."""
    buffer: BufferConfig = BufferConfig()
    rewards: RewardsConfig = RewardsConfig()
    actors: ActorsConfig = ActorsConfig()
    learner: LearnerConfig = LearnerConfig()
    ray: RayConfig = RayConfig()
    metrics: MetricsConfig = MetricsConfig()

    @model_validator(mode="after")
    def _stages_fill_the_run(self) -> Config:
        length = self.schedule.length
        if length is not None and length < self.run.steps:
            raise ValueError(f"run.steps: {self.run.steps} steps, but the stages end after {length}")
        return self

    @property
    def schedule(self) -> Schedule:
        """Which rules hold at which step."""
        return Schedule(self.stages, self.learner)


def load_config(source: Path | str, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file (or a shipped recipe by name), apply ``key.path=value`` overrides, check everything.

    Raises ConfigError naming the field, what is wrong with it and, for an unknown key, the nearest valid one.
    """
    data = read_yaml(find_recipe(source))
    for override in overrides:
        apply_override(data, override)
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(error, str(source)))) from None


def find_recipe(source: Path | str) -> Path:
    """The file itself, or the shipped recipe of that name; raises ConfigError listing the recipes."""
    path = Path(source)
    if path.is_file():
        return path
    shipped = RECIPES / f"{path.name.removesuffix('.yaml')}.yaml"
    if shipped.is_file():
        return shipped
    names = sorted(recipe.stem for recipe in RECIPES.glob("*.yaml"))
    near = difflib.get_close_matches(path.stem, names, n=1)
    hint = f"did you mean the recipe {near[0]!r}?" if near else f"shipped recipes: {', '.join(names)}"
    raise ConfigError(f"{source}: no such file or recipe; {hint}")


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping as nested dictionaries; raises ConfigError with the line of a syntax error."""
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not readable as YAML: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must be a mapping of sections (run, model, data, ...)")
    return data


def apply_override(data: dict[str, Any], override: str) -> None:
    """Set ``a.b.c=value`` in place, the value read as YAML; list items by index (``stages.0.kl=0``)."""
    key, equals, text = override.partition("=")
    parts = key.split(".")
    if not equals or not all(parts):
        raise ConfigError(f"override {override!r}: must look like learner.lr=2e-6")
    try:
        value = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError:
        raise ConfigError(f"override {override!r}: the value is not readable as YAML") from None
    node: Any = data
    for depth, part in enumerate(parts[:-1]):
        node = _child(node, part, ".".join(parts[: depth + 1]))
    _assign(node, parts[-1], value, key)


def describe(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Every leaf field below ``model`` as (dotted key, value, one-line explanation)."""
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        nested = value if isinstance(value, tuple) else (value,)
        if nested and all(isinstance(item, BaseModel) for item in nested):
            for index, item in enumerate(nested):
                part = f"{name}.{index}" if isinstance(value, tuple) else name
                yield from describe(item, f"{prefix}{part}.")
        else:
            yield f"{prefix}{name}", value, " ".join((info.description or "").split())


class _Loader(yaml.SafeLoader):
    """YAML 1.2's numbers: ``1e-6`` is a number, not text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _child(node: Any, part: str, key: str) -> Any:
    if isinstance(node, list) and part.isdecimal() and int(part) < len(node):
        return node[int(part)]
    if isinstance(node, dict):
        if not isinstance(node.get(part), dict | list):
            node[part] = {}
        return node[part]
    raise ConfigError(f"override {key}: there is nothing of that name to set")


def _assign(node: Any, part: str, value: Any, key: str) -> None:
    if isinstance(node, list) and part.isdecimal() and int(part) < len(node):
        node[int(part)] = value
    elif isinstance(node, dict):
        node[part] = value
    else:
        raise ConfigError(f"override {key}: there is nothing of that name to set")


def _explain(error: ValidationError, source: str) -> Iterator[str]:
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            near = difflib.get_close_matches(
                str(item["loc"][-1]), list(_valid_names(item["loc"][:-1])), n=1, cutoff=0.5
            )
            hint = (
                f"did you mean {near[0]!r}?"
                if near
                else f"valid: {', '.join(_valid_names(item['loc'][:-1]))}"
            )
            yield f"{source}: {field}: unknown key; {hint}"
        elif item["type"] == "missing":
            yield f"{source}: {field}: missing; add it to the file or as {field}=... on the command line"
        else:
            given = "" if isinstance(item["input"], Mapping) else f" (got {item['input']!r})"
            message = item["msg"].removeprefix("Value error, ")
            yield f"{source}: {field + ': ' if field else ''}{message}{given}"


def _valid_names(location: tuple[int | str, ...]) -> list[str]:
    model: Any = Config
    for part in location:
        if isinstance(part, str) and isinstance(model, type) and issubclass(model, BaseModel):
            model = _model_in(model.model_fields[part].annotation)
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _model_in(annotation: Any) -> Any:
    """The pydantic model inside ``Model | None`` or ``tuple[Model, ...]``."""
    if get_origin(annotation) in (Union, types.UnionType, tuple, list):
        inner = (_model_in(argument) for argument in get_args(annotation))
        return next(
            (model for model in inner if isinstance(model, type) and issubclass(model, BaseModel)), None
        )
    return annotation
