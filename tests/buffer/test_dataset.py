"""Datasets from parquet and JSON lines: indices, rows set aside, errors."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from buffer.prompts.dataset import DatasetError, NoUsableRow, read_dataset
from buffer.prompts.row import Columns
from helpers.dataset_files import skywork, write_lines
from rewards.config import MathConfig
from rewards.math.reward import MathReward

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


CASES = SHARED.parent / "cases"


def test_skywork_rows_come_back_by_index_from_parquet_and_from_lines(tmp_path: Path) -> None:
    rows = [skywork(index) for index in range(5)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    write_lines(tmp_path / "a.jsonl", rows)
    parquet, lines = read_dataset(tmp_path / "a.parquet"), read_dataset(tmp_path / "a.jsonl")
    assert list(parquet) == list(lines)
    assert parquet.digest == lines.digest
    row = parquet[3]
    assert (row.index, row.data_source, row.ability, row.ground_truth) == (3, "train-math", "math", "4")
    assert row.messages == [{"role": "user", "content": "What is 3 + 1?"}]
    assert row.problem.prompt == "What is 3 + 1?"


def test_pass_rate_is_of_the_named_model(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [skywork(4), skywork(0), skywork(2, extra_info={})])
    rates = [head.pass_rate for head in read_dataset(path, Columns(model="small")).heads]
    assert rates == [4 / 16, 0.0, None]  # 12, 16 failures of 16, unknown
    assert [head.pass_rate for head in read_dataset(path).heads] == [None, None, None]
    with pytest.raises(DatasetError, match="'tiny'; models there: large, small"):
        read_dataset(path, Columns(model="tiny"))


def test_arrow_adds_none_keys_and_they_are_stripped(tmp_path: Path) -> None:
    rows = [skywork(0), skywork(1, extra_info={"index": 1, "nested": [{"a": 1}, {"b": 2}]})]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    dataset = read_dataset(tmp_path / "a.parquet")
    assert dataset[0].extra == rows[0]["extra_info"]
    assert dataset[1].extra == rows[1]["extra_info"]


def test_arrow_maps_read_as_mappings(tmp_path: Path) -> None:
    kind = pa.struct([("model_difficulty", pa.map_(pa.string(), pa.int64()))])
    columns = {
        "prompt": ["1 + 1?"],
        "reward_model": [{"ground_truth": "2"}],
        "extra_info": pa.array([{"model_difficulty": [("small", 8)]}], kind),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert read_dataset(tmp_path / "a.parquet", Columns(model="small"))[0].pass_rate == 0.5


def test_the_released_rows_are_graded_right() -> None:
    path = CASES / "datasets" / "skywork_math.jsonl"
    if not path.exists():
        pytest.skip(f"{path.name} is not at hand")
    grader = MathReward(MathConfig())
    answers = [("2", "3"), (r"\sqrt{9}", "9"), ("0.5", "2"), ("[2, 3]", "2")]
    for row, (right, wrong) in zip(read_dataset(path), answers, strict=True):
        assert grader.score(row.problem, f"\\boxed{{{right}}}").value == 1.0
        assert grader.score(row.problem, f"\\boxed{{{wrong}}}").value == 0.0


def test_code_tests_stay_a_json_string(tmp_path: Path) -> None:
    tests = {"inputs": ["1\n"], "outputs": ["2\n"], "fn_name": None}
    rows = [
        skywork(0, ability="code", reward_model={"ground_truth": json.dumps(tests)}),
        skywork(1, ability="code", reward_model={"ground_truth": {"inputs": ["1\n"], "outputs": ["2\n"]}}),
    ]
    dataset = read_dataset(write_lines(tmp_path / "a.jsonl", rows))
    assert dataset[0].ground_truth == json.dumps(tests)
    assert json.loads(dataset[1].ground_truth) == {"inputs": ["1\n"], "outputs": ["2\n"]}


def test_bad_rows_are_set_aside_by_number_and_the_others_keep_theirs(tmp_path: Path) -> None:
    first = write_lines(tmp_path / "first.jsonl", [skywork(0), "{broken", skywork(2), "[1]"])
    second = write_lines(tmp_path / "second.jsonl", [{"question": "1 + 1?"}, skywork(5)])
    dataset = read_dataset([first, second])
    assert [head.index for head in dataset.heads] == [0, 2, 5]
    assert [(skip.file.name, skip.row, skip.reason) for skip in dataset.skipped] == [
        ("first.jsonl", 1, "is not a JSON object"),
        ("first.jsonl", 3, "is not a JSON object"),
        ("second.jsonl", 0, "has no answer"),
    ]
    assert dataset[5].ground_truth == "6"
    with pytest.raises(KeyError):
        dataset[1]
    assert "3 rows, 3 set aside; 2 x is not a JSON object (first: row 1 of first.jsonl)" in dataset.summary()


def test_each_file_has_its_form_and_its_reasons(tmp_path: Path) -> None:
    first = write_lines(tmp_path / "first.jsonl", [skywork(0), "{broken", "[1]", {"question": "1 + 1?"}])
    second = write_lines(tmp_path / "second.jsonl", [{"question": "1 + 1?", "answer": "2"}])
    one, two = read_dataset([first, second]).files
    assert (one.file, one.form, one.rows) == (first, "verl", 1)
    assert one.set_aside == {"is not a JSON object": 2, "has no answer": 1}
    assert (two.file, two.form, two.rows, two.set_aside) == (second, "columns", 1, {})


def test_a_file_of_which_too_much_is_set_aside_is_refused(tmp_path: Path) -> None:
    good = write_lines(tmp_path / "good.jsonl", [skywork(index % 17) for index in range(90)])
    bad = write_lines(tmp_path / "bad.jsonl", [skywork(0)] * 9 + ["17"])
    dataset = read_dataset([good, bad])
    dataset.refuse_set_aside(0.1)
    with pytest.raises(DatasetError, match=r"bad\.jsonl: 1 of 10 rows are set aside: 1 x is not a JSON"):
        dataset.refuse_set_aside(0.09)


def test_a_file_listed_twice_counts_twice(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [skywork(0), skywork(1)])
    dataset = read_dataset([path, path])
    assert [row.ground_truth for row in dataset] == ["1", "2", "1", "2"]
    assert [row.index for row in dataset] == [0, 1, 2, 3]
    assert dataset.digest != read_dataset(path).digest


def test_a_folder_is_its_files_in_order_and_gzip_is_read(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "1.jsonl.gz", "wt") as file:
        file.write(json.dumps(skywork(0)))
    write_lines(tmp_path / "2.jsonl", [skywork(1)])
    (tmp_path / "README.md").write_text("not rows")
    assert [row.ground_truth for row in read_dataset(tmp_path)] == ["1", "2"]


def test_errors_name_the_file_and_the_fix(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"nowhere\.jsonl: no such file"):
        read_dataset(tmp_path / "nowhere.jsonl")
    with pytest.raises(DatasetError, match=r"a\.csv: not a dataset file, use \.parquet"):
        read_dataset(write_lines(tmp_path / "a.csv", ["question,answer"]))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DatasetError, match=r"b\.parquet: cannot be read"):
        read_dataset(tmp_path / "b.parquet")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b'{"question": "1?"}\n' * 99)[:-12])
    with pytest.raises(DatasetError, match=r"c\.jsonl\.gz: cannot be read"):
        read_dataset(tmp_path / "c.jsonl.gz")
    with pytest.raises(
        NoUsableRow, match=r"2 x has no answer \(first: row 0 of d\.jsonl\); a row needs prompt and"
    ):
        read_dataset(write_lines(tmp_path / "d.jsonl", [{"question": "1?"}] * 2))
    with pytest.raises(NoUsableRow):
        read_dataset(write_lines(tmp_path / "e.jsonl", []))
    with pytest.raises(NoUsableRow) as unusable:
        read_dataset(write_lines(tmp_path / "f.jsonl", ["{}", "[]"]))
    reasons = [(skip.row, skip.reason) for skip in unusable.value.dataset.skipped]
    assert reasons == [(0, "has no prompt"), (1, "is not a JSON object")]


def test_rows_beyond_memory_and_from_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buffer.prompts.dataset._IN_MEMORY_BYTES", 1 << 12)
    rows = [skywork(index, extra_info={"filler": "x" * index * 100}) for index in range(50)]
    dataset = read_dataset(write_lines(tmp_path / "a.jsonl", rows))
    wrong: list[int] = []

    def read(start: int) -> None:
        for step in range(200):
            index = (start + step * 7) % 50
            if (
                dataset[index].ground_truth != str(index + 1)
                or len(dataset[index].extra["filler"]) != index * 100
            ):
                wrong.append(index)

    threads = [threading.Thread(target=read, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no folder of real datasets at {SHARED}")
@pytest.mark.parametrize(
    ("name", "rows", "index", "answer"),
    [
        ("aime24.parquet", 30, 0, "204"),
        ("gsm8k_test.jsonl", 1319, 0, "18"),
        ("mawps_addsub.jsonl", 395, 0, "43"),
    ],
)
def test_files_of_public_datasets_are_read_whole(name: str, rows: int, index: int, answer: str) -> None:
    dataset = read_dataset(SHARED / name)
    assert (len(dataset), dataset.skipped, dataset[index].ground_truth) == (rows, [], answer)
