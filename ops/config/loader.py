"""Read configuration files, apply overrides from the command line, and explain mistakes and settings.

config = load_config(Path("my_run.yaml"), ["learner.lr=2e-6", "run.name=second"])
"""

from __future__ import annotations

import difflib
import re
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ops.config.schema import Config, ConfigError

RECIPES = Path(__file__).parent / "recipes"
_DOCUMENT_END = "\n..."


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
    """Return the file itself, or the shipped recipe of that name. Raises ConfigError."""
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
    """Read a YAML mapping as nested dictionaries. Raises ConfigError with the line of a syntax error."""
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not readable as YAML: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must be a mapping of sections (run, model, data, ...)")
    return data


def apply_override(data: dict[str, Any], override: str) -> None:
    """Set ``a.b.c=value`` in place, the value read as YAML. List items go by index (``stages.0.kl=0``)."""
    key, equals, text = override.partition("=")
    parts = key.split(".")
    if not equals or not all(parts):
        raise ConfigError(f"override {override!r}: must look like learner.lr=2e-6")
    try:
        value = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError:
        raise ConfigError(f"override {override!r}: the value is not readable as YAML") from None
    *parents, last = parts
    node: Any = data
    for part in parents:
        at = _key_in(node, part, key)
        if isinstance(node, dict) and not isinstance(node.get(at), dict | list):
            node[at] = {}
        node = node[at]
    node[_key_in(node, last, key)] = value


def _key_in(node: Any, part: str, key: str) -> Any:
    """Return one part of an override's key as a key of ``node``: a name, or an index that exists."""
    if isinstance(node, dict):
        return part
    if isinstance(node, list) and part.isdecimal() and int(part) < len(node):
        return int(part)
    raise ConfigError(f"override {key}: there is nothing of that name to set")


def explain(model: BaseModel) -> Iterator[str]:
    """Yield the configuration as YAML that loads back the same, a comment above each field."""
    values = model.model_dump(mode="json")
    for name, info in type(model).model_fields.items():
        text = " ".join(_description(info).split())
        yield from textwrap.wrap(text, 100, initial_indent="# ", subsequent_indent="# ")
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield f"{name}:"
            yield from (f"  {line}" for line in explain(value))
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            yield f"{name}:"
            for item in value:
                yield from _list_item(explain(item))
        else:
            inline = yaml.safe_dump(values[name], default_flow_style=True, width=1000)
            yield f"{name}: {inline.split(_DOCUMENT_END)[0].rstrip()}"


def _description(info: FieldInfo) -> str:
    """Return the field's docstring, else that of its section."""
    section = _model_in(info.annotation)
    inherited = section.__doc__ if isinstance(section, type) and issubclass(section, BaseModel) else None
    return info.description or inherited or ""


def _list_item(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines of a mapping as one item of a list; comments keep their place."""
    first = True
    for line in lines:
        yield f"  - {line}" if first and not line.startswith("#") else f"    {line}"
        first = first and line.startswith("#")


class _Loader(yaml.SafeLoader):
    """PyYAML with YAML 1.2's numbers: ``1e-6`` is a number, not text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _explain(error: ValidationError, source: str) -> Iterator[str]:
    """Yield a line for each mistake: the field, what is wrong with it, and the fix."""
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            yield f"{source}: {field}: unknown key; {_nearest(item['loc'])}"
        elif item["type"] == "missing":
            yield f"{source}: {field}: missing; add it to the file or as {field}=... on the command line"
        else:
            given = "" if isinstance(item["input"], Mapping) else f" (got {item['input']!r})"
            message = item["msg"].removeprefix("Value error, ")
            yield f"{source}: {field + ': ' if field else ''}{message}{given}"


def _nearest(location: tuple[int | str, ...]) -> str:
    valid = _valid_names(location[:-1])
    near = difflib.get_close_matches(str(location[-1]), valid, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"valid: {', '.join(valid)}"


def _valid_names(location: tuple[int | str, ...]) -> list[str]:
    model: Any = Config
    for part in location:
        if isinstance(part, str) and isinstance(model, type) and issubclass(model, BaseModel):
            model = _model_in(model.model_fields[part].annotation)
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _model_in(annotation: Any) -> Any:
    """Return the pydantic model inside ``Model | None`` or ``tuple[Model, ...]``."""
    if get_origin(annotation) in (Union, types.UnionType, tuple, list):
        inner = (_model_in(argument) for argument in get_args(annotation))
        return next(
            (model for model in inner if isinstance(model, type) and issubclass(model, BaseModel)), None
        )
    return annotation
