"""Files of records: every kind gives the same rows, and a bad one is named."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from buffer.prompts.dataset import DatasetError, read_dataset
from buffer.prompts.files import records
from helpers.dataset_files import write_lines

ROWS = [{"question": f"{index}+1?", "answer": str(index + 1), "tags": ["a", "b"]} for index in range(100)]


def save_arrow(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """Write a folder as ``datasets.Dataset.save_to_disk`` does: two shards in the streaming format."""
    folder.mkdir(parents=True)
    for name in ("dataset_info.json", "state.json"):
        (folder / name).write_text("{}")
    half = len(rows) // 2
    for number, some in enumerate((rows[:half], rows[half:])):
        table = pa.Table.from_pylist(some)
        with pa.ipc.new_stream(folder / f"data-{number:05}-of-00002.arrow", table.schema) as writer:
            writer.write_table(table)
    return folder


def write(path: Path) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif path.suffix == "":
        save_arrow(path, ROWS)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(text))
    elif path.suffix == ".zst":
        path.write_bytes(zstandard.compress(text[:900]) + zstandard.compress(text[900:]))
    else:
        path.write_bytes(json.dumps(ROWS, indent=1).encode() if path.stem == "array" else text)
    return path


@pytest.mark.parametrize(
    "name", ["a.parquet", "a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "array.json", "lines.json", "saved"]
)
def test_every_kind_of_file_has_the_same_rows(tmp_path: Path, name: str) -> None:
    dataset = read_dataset(write(tmp_path / name))
    assert [row.ground_truth for row in dataset] == [row["answer"] for row in ROWS]
    assert dataset[7].extra == {"tags": ["a", "b"]}
    assert dataset[99].data_source == name.split(".")[0]


def test_a_saved_dict_of_splits_is_read_where_it_has_only_one(tmp_path: Path) -> None:
    save_arrow(tmp_path / "saved" / "train", ROWS)
    about = tmp_path / "saved" / "dataset_dict.json"
    about.write_text('{"splits": ["train"]}')
    assert len(read_dataset(tmp_path / "saved")) == 100
    about.write_text('{"splits": ["train", "test"]}')
    with pytest.raises(DatasetError, match=r"has the splits train, test, give one: .*saved/train"):
        read_dataset(tmp_path / "saved")


def test_parquet_with_the_list_features_of_datasets_4(tmp_path: Path) -> None:
    text = {"dtype": "string", "_type": "Value"}
    message = {"_type": "List", "feature": {"role": text, "content": text}}
    about = {"info": {"features": {"prompt": message, "answer": text}}}
    rows = [{"prompt": [{"role": "user", "content": "1+1?"}], "answer": "2"}]
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"huggingface": json.dumps(about)})
    pq.write_table(table, tmp_path / "a.parquet")
    (row,) = read_dataset(tmp_path / "a.parquet")
    assert (row.problem.prompt, row.ground_truth) == ("1+1?", "2")


def test_a_list_of_turns_is_a_conversation(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "1+1?"}, {"from": "assistant", "ground_truth": {"value": "2"}}]
    path = tmp_path / "a.json"
    path.write_text(json.dumps([turns]))
    (row,) = read_dataset(path)
    assert (row.form, row.problem.prompt, row.ground_truth) == ("turns", "1+1?", "2")


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [json.dumps(row) for row in ROWS[:2]]
    path.write_text(f"\ufeff{lines[0]}\n\n  \t\n{lines[1]}\r\n\n", encoding="utf-8")
    dataset = read_dataset(path)
    assert ([row.index for row in dataset], dataset.skipped) == ([0, 1], [])


def test_bad_rows_are_named_by_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    good = b'{"question": "1+1?", "answer": "2"}'
    huge, large = b'{"question": "1?", "answer": %s}' % (b"9" * 5000), b'{"question": "1?", "answer": 1e999}'
    bad = [b'{"question": "caf\xe9?", "answer": "2"}', b'{"question": "\\ud800", "answer": "2"}', huge, large]
    path.write_bytes(b"\n".join([*bad, b"[" * 100_000, b"17", good]))
    dataset = read_dataset(path)
    assert [row.index for row in dataset] == [6]
    assert dataset.files[0].set_aside == {
        "is not UTF-8": 1,
        "has a lone surrogate, which is no character": 1,
        "has a number beyond what JSON readers take as its answer": 2,
        "is not a JSON object": 2,
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl.gz", gzip.compress(b'{"question": "1?"}\n' * 99)[:-12]),
        ("a.jsonl.zst", zstandard.compress(b'{"question": "1?"}\n' * 99)[:-3]),
        ("a.json", b'[{"question": "1?"}, {'),
        ("a.json", b'[{"question": "\xe9"}]'),
        ("a.arrow", b"no arrow"),
        ("a.parquet", b"PAR1 no"),
    ],
)
def test_a_file_that_is_cut_short_cannot_be_read(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=rf"{name}: cannot be read: ."):
        read_dataset(tmp_path / name)


def test_the_rows_of_a_dataset_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load_dataset(*names: str, split: str) -> Any:
        asked.append((*names, split))
        return SimpleNamespace(with_format=lambda kind: SimpleNamespace(iter=batches))

    def batches(batch_size: int) -> Any:
        return (pa.Table.from_pylist(ROWS[at : at + batch_size]) for at in range(0, 100, batch_size))

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    assert [row["answer"] for _, row in records(Path("hf:me/mine"))] == [row["answer"] for row in ROWS]
    assert read_dataset(Path("hf:me/mine/main:test[:5%]"))[0].data_source == "mine"
    assert read_dataset(Path("hf:me/mine"))[0].data_source == "mine"
    assert asked == [("me/mine", "train"), ("me/mine", "main", "test[:5%]"), ("me/mine", "train")]


def test_the_hub_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DatasetError, match=r"hf:me/mine: needs the package datasets: pip install 'magicrl"):
        read_dataset(Path("hf:me/mine"))
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=None))
    with pytest.raises(DatasetError, match=r"hf:mine: give hf:owner/name, hf:owner/name/config:split"):
        read_dataset(Path("hf:mine"))


def test_a_folder_without_rows_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "state.json", ["{}"])
    with pytest.raises(DatasetError, match=r"the folder holds no \.parquet, \.jsonl"):
        read_dataset(tmp_path)
