"""Records from files: JSON lines and arrays, parquet, Arrow, and datasets of the Hugging Face hub."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from buffer.prompts.row import BadRow

Record = Mapping[str, Any] | BadRow
"""One row of a file; BadRow where there is no record at all."""

HUB = "hf:"
"""Prefix of a dataset of the hub: ``hf:owner/name``, ``hf:owner/name/config:split``; split: train."""

KINDS = ".parquet, .jsonl, .jsonl.gz, .jsonl.zst, .json or .arrow"

_BATCH_ROWS = 64  # rows decoded at a time: a row of code tests can be megabytes
_ABOUT_ROWS = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")


class DatasetError(ValueError):
    """The dataset as a whole cannot be used; the message names the file and the fix."""


def files_of(path: Path) -> list[Path]:
    """Return the file, the hub's dataset, or the files of the folder. Raises DatasetError."""
    if is_hub(path):
        return [path]
    if path.is_dir():
        return _in_folder(path)
    if not path.is_file():
        raise DatasetError(f"{path}: no such file")
    if not _reader(path):
        raise DatasetError(f"{path}: not a dataset file, use {KINDS}")
    return [path]


def is_hub(path: Path) -> bool:
    """Return whether the path names a dataset of the hub."""
    return str(path).startswith(HUB)


def source_of(file: Path) -> str:
    """Return the data source of records that name none: the file's name, or the folder of Arrow files."""
    if is_hub(file):
        return str(file).removeprefix(HUB).split(":")[0].split("/")[1]
    name = file.parent.name if file.suffix == ".arrow" else file.name
    return name.split(".")[0]


def records(file: Path) -> Iterator[tuple[int, Record]]:
    """Yield the number and the content of each row; blank lines are no rows. Raises DatasetError."""
    reader = _hub if is_hub(file) else _reader(file)
    assert reader, file  # files_of returns no other
    try:
        yield from enumerate(reader(file))
    except DatasetError:
        raise
    except (OSError, EOFError, ValueError, RecursionError, pa.ArrowException) as error:
        raise DatasetError(f"{file}: cannot be read: {error}") from error


def _in_folder(folder: Path) -> list[Path]:
    """Return a folder's files in order; of a saved ``DatasetDict`` those of its only split."""
    splits = folder / "dataset_dict.json"
    if splits.is_file():
        names = json.loads(splits.read_text(encoding="utf-8"))["splits"]
        if len(names) != 1:
            raise DatasetError(f"{folder}: has the splits {', '.join(names)}, give one: {folder / names[0]}")
        folder = folder / names[0]
    found = sorted(file for file in folder.iterdir() if _reader(file) and file.name not in _ABOUT_ROWS)
    if not found:
        raise DatasetError(f"{folder}: the folder holds no {KINDS} file")
    return found


def _reader(file: Path) -> Callable[[Path], Iterator[Record]] | None:
    name = file.name.lower()
    return next((read for ending, read in _READERS.items() if name.endswith(ending)), None)


def _json_lines(file: Path) -> Iterator[Record]:
    with io.BufferedReader(pa.input_stream(str(file), compression="detect")) as lines:
        for line in lines:
            if line.strip():
                yield _parsed(line)


def _parsed(line: bytes) -> Record:
    try:
        return _record(_DECODER.decode(line.decode("utf-8-sig")))
    except UnicodeDecodeError:
        return BadRow("is not UTF-8")
    except (ValueError, RecursionError):
        return BadRow("is not a JSON object")


def _json_array(file: Path) -> Iterator[Record]:
    try:
        content = _DECODER.decode(file.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        yield from _json_lines(file)  # JSON lines by another name
    else:
        yield from map(_record, content if isinstance(content, list) else [content])


def _record(value: Any) -> Record:
    if isinstance(value, list) and value and all(isinstance(turn, dict) for turn in value):
        return {"conversations": value}
    return value if isinstance(value, dict) else BadRow("is not a JSON object")


def _integer(digits: str) -> float:
    try:
        return int(digits)
    except ValueError:  # more than sys.get_int_max_str_digits()
        return math.inf


def _parquet(file: Path) -> Iterator[Record]:
    with pq.ParquetFile(file) as parquet:
        yield from _rows(parquet.iter_batches(batch_size=_BATCH_ROWS))


def _arrow(file: Path) -> Iterator[Record]:
    with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as batches:
        for batch in batches:
            yield from _rows(batch.slice(start, _BATCH_ROWS) for start in range(0, len(batch), _BATCH_ROWS))


def _hub(path: Path) -> Iterator[Record]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise DatasetError(f"{path}: needs the package datasets: pip install 'magicrl[hub]'") from None
    name, _, split = str(path).removeprefix(HUB).partition(":")
    owner, _, rest = name.partition("/")
    repository, *config = rest.split("/", 1)
    if not repository:
        raise DatasetError(f"{path}: give {HUB}owner/name, {HUB}owner/name/config:split, or a file")
    dataset = load_dataset(f"{owner}/{repository}", *config, split=split or "train")
    yield from _rows(dataset.with_format("arrow").iter(batch_size=_BATCH_ROWS))


def _rows(batches: Iterable[Any]) -> Iterator[Record]:
    for batch in batches:
        yield from batch.to_pylist(maps_as_pydicts="lossy")


_DECODER = json.JSONDecoder(parse_int=_integer)
_READERS: dict[str, Callable[[Path], Iterator[Record]]] = {
    ".parquet": _parquet,
    ".jsonl": _json_lines,
    ".jsonl.gz": _json_lines,
    ".jsonl.zst": _json_lines,
    ".json": _json_array,
    ".arrow": _arrow,
}
