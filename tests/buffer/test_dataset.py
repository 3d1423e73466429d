"""Reading dataset rows: schemas, bad rows, access by index."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buffer.prompts.dataset import DatasetError, NoUsableRow, read_dataset
from buffer.prompts.row import BadRow, Columns, final_answer, read_row, without_none
from rewards.code.test_cases import read_tests
from rewards.config import MathConfig
from rewards.math.reward import MathReward

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
CASES = SHARED.parent / "cases"


def skywork(index: int, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "data_source": "train-math",
        "prompt": [{"role": "user", "content": f"What is {index} + 1?"}],
        "ability": "math",
        "reward_model": {"ground_truth": str(index + 1), "style": "rule"},
        "extra_info": {"index": index, "model_difficulty": {"small": 16 - index, "large": 0}},
    }
    return row | changes


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


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


@pytest.mark.parametrize(
    ("ground_truth", "response", "value"),
    [
        ('["2"]', "2", 1.0),
        ("['2', '7']", "7", 1.0),
        ("['2', '7']", "8", 0.0),
        ("[2, 3]", "[2, 3]", 1.0),
        ("[2, 3]", "2", 0.0),
    ],
)
def test_the_text_of_a_list_is_graded_as_the_references_in_it(
    ground_truth: str, response: str, value: float
) -> None:
    row = read_row(skywork(0, reward_model={"ground_truth": ground_truth}), 0, "", Columns())
    assert MathReward(MathConfig()).score(row.problem, f"\\boxed{{{response}}}").value == value


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


@pytest.mark.parametrize(
    ("record", "question", "answer"),
    [
        ({"question": "1 + 1?", "answer": "2"}, "1 + 1?", "2"),
        ({"problem": "1 + 1?", "solution": "Add: \\boxed{\\frac{4}{2}} so."}, "1 + 1?", "\\frac{4}{2}"),
        ({"problem": "1 + 1?", "solution": "long", "answer": 2}, "1 + 1?", "2"),
        ({"input": "1 + 1?", "target": 2.0}, "1 + 1?", "2"),
        ({"input": "1 / 2?", "target": 0.5}, "1 / 2?", "0.5"),
        ({"prompt": "1 + 1?", "ground_truth": ["2", "two"]}, "1 + 1?", ["2", "two"]),
        ({"question": "ducks?", "answer": "9 * 2 = <<9*2=18>>18 dollars.\n#### 1,018 "}, "ducks?", "1,018"),
    ],
)
def test_plain_columns(record: dict[str, Any], question: str, answer: Any) -> None:
    row = read_row(record, 7, "mine", Columns())
    assert row.messages == [{"role": "user", "content": question}]
    assert (row.ground_truth, row.ability, row.data_source, row.index) == (answer, "math", "mine", 7)


HUMAN_EVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'def add(a, b):\n    """Add."""\n',
    "entry_point": "add",
    "canonical_solution": "    return a + b\n",
    "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
}
MBPP = {"text": "Write a function that adds.", "code": "...", "test_list": ["assert add(1, 2) == 3"]}
TACO = {"question": "Add two numbers.", "inputs": ["1 2\n"], "outputs": ["3\n"], "solution": "..."}


@pytest.mark.parametrize(
    ("record", "question", "tests"),
    [
        (
            HUMAN_EVAL,
            HUMAN_EVAL["prompt"],
            {key: HUMAN_EVAL[key] for key in ("test", "entry_point", "prompt")},
        ),
        (MBPP, MBPP["text"], {"test_list": MBPP["test_list"]}),
        (TACO, TACO["question"], {"inputs": ["1 2\n"], "outputs": ["3\n"]}),
    ],
)
def test_plain_columns_with_tests_are_programs(
    record: dict[str, Any], question: str, tests: dict[str, Any]
) -> None:
    row = read_row(record, 0, "mine", Columns())
    assert (row.messages[0]["content"], row.ability) == (question, "code")
    assert json.loads(row.ground_truth) == tests
    assert not set(tests) & set(row.extra)
    assert read_tests(row.ground_truth)


def test_a_column_that_is_only_called_test_holds_no_tests() -> None:
    row = read_row({"question": "1 + 1?", "answer": "2", "test": "yes", "inputs": 3}, 0, "mine", Columns())
    assert (row.ability, row.ground_truth) == ("math", "2")


def test_named_columns_and_instruction() -> None:
    columns = Columns(question="ask", answer="key", instruction="Use \\boxed{}.", ability="code")
    row = read_row({"ask": "1 + 1?", "key": "2", "question": "no", "answer": "no"}, 0, "mine", columns)
    assert row.messages[0]["content"] == "1 + 1? Use \\boxed{}."
    assert row.ability == "code"
    again = read_row({"ask": row.messages[0]["content"], "key": "2"}, 0, "mine", columns)
    assert again.messages == row.messages


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({}, "has no prompt"),
        ({"answer": "2"}, "has no prompt"),
        ({"question": "1 + 1?"}, "has no answer"),
        ({"question": "1 + 1?", "answer": float("nan")}, "has no answer"),
        ({"question": "1 + 1?", "answer": "  "}, "has no answer"),
        (skywork(0, prompt=[]), "has no prompt"),
        (skywork(0, prompt=[{"role": "user", "content": " "}]), "has no prompt"),
        (skywork(0, prompt=[{"role": "user"}]), "list of messages"),
        (skywork(0, prompt=["hello"]), "list of messages"),
        (skywork(0, reward_model={"style": "rule"}), "has no answer"),
        (skywork(0, reward_model={"ground_truth": None}), "has no answer"),
        (skywork(0, reward_model={"ground_truth": '[""]'}), "has no answer"),
        (skywork(0, reward_model={"ground_truth": [None, ""]}), "has no answer"),
        (skywork(0, extra_info={"model_difficulty": {"small": 17}}), "from 0 to 16"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(record: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        read_row(record, 0, "mine", Columns(model="small"))


def test_an_ability_without_a_grader_sets_a_row_aside() -> None:
    row = read_row(skywork(0, ability="math"), 0, "mine", Columns(abilities=("math",)))
    assert row.ability == "math"
    with pytest.raises(BadRow, match=r"without a grader .* 'poetry'"):
        read_row(skywork(0, ability="poetry"), 0, "mine", Columns(abilities=("math",)))


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


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_no_map_keeps_a_none(value: Any) -> None:
    def nones(item: Any) -> int:
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        return sum(nones(x) for x in inner) + (isinstance(item, dict) and None in item.values())

    stripped = without_none(value)
    assert nones(stripped) == 0
    assert without_none(stripped) == stripped


@given(st.text())
def test_a_boxed_answer_is_what_is_in_the_box(text: str) -> None:
    balanced = text.replace("{", "").replace("}", "").replace("\\", "").replace("#", "")
    assert final_answer("So \\boxed{1}, no: \\boxed{{" + balanced + "}}.") == "{" + balanced + "}"


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no folder of real datasets at {SHARED}")
@pytest.mark.parametrize(
    ("name", "rows", "index", "answer"),
    [
        ("aime24.parquet", 30, 0, "204"),
        ("gsm8k_test.jsonl", 1319, 0, "18"),
        ("mawps_addsub.jsonl", 395, 0, "43"),
    ],
)
def test_real_files(name: str, rows: int, index: int, answer: str) -> None:
    dataset = read_dataset(SHARED / name)
    assert (len(dataset), dataset.skipped, dataset[index].ground_truth) == (rows, [], answer)
