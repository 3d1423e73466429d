"""The forms of public datasets: rows as their authors publish them, with invented content."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from buffer.prompts.dataset import read_dataset
from buffer.prompts.record import read_row
from buffer.prompts.row import BadRow, Columns, Row
from helpers.dataset_files import skywork
from rewards.code.test_cases import CallTests, StdinTests, read_tests
from rewards.config import MathConfig
from rewards.math.reward import MathReward

CASES = Path(__file__).parents[3] / "shared" / "cases" / "datasets"
ASK = [{"role": "user", "content": "1+1?"}]
SUM = {"inputs": ["3 4\n"], "outputs": ["7\n"]}
CHOICES = {"question": "Which is even?"}
OPTIONS = "Which is even?\n\nA) one\nB) two"


def read(record: dict[str, Any], columns: Columns | None = None) -> Row:
    return read_row(record, 0, "mine", columns or Columns())


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


@pytest.mark.parametrize(
    ("form", "record", "prompt", "truth"),
    [
        ("verl", skywork(1, ability="MATH"), "What is 1 + 1?", "2"),
        ("messages", {"messages": ASK, "answer": "2"}, "1+1?", "2"),
        (
            "messages",
            {"messages": [*ASK, {"role": "assistant", "content": "\\boxed{2}"}], "answer": "3"},
            "1+1?",
            "3",
        ),
        (
            "messages",
            {"messages": [*ASK, {"role": "assistant", "content": "It is \\boxed{2}."}]},
            "1+1?",
            "2",
        ),
        (
            "messages",
            {"conversations": [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "So\n#### 2"}]},
            "1+1?",
            "2",
        ),
        (
            "turns",
            {
                "conversations": [
                    {"from": "human", "value": "1+1?"},
                    {"from": "assistant", "ground_truth": {"value": "2", "pass_at_n": 0.5}},
                ]
            },
            "1+1?",
            "2",
        ),
        ("gsm8k", {"question": "1+1?", "answer": "1+1=<<1+1=2>>2\n#### 2"}, "1+1?", "2"),
        (
            "open_r1",
            {"problem": "1+1?", "solution": "Two.", "answer": "2", "generations": ["..."]},
            "1+1?",
            "2",
        ),
        ("big_math", {"problem": "1+1?", "answer": "2", "llama8b_solve_rate": 0.25}, "1+1?", "2"),
        ("columns", {"problem": "A) 1 B) 2?", "expected_answer": "B"}, "A) 1 B) 2?", "B"),
        ("choices", CHOICES | {"choices": ["one", "two"], "answer": 1}, OPTIONS, "B"),
        ("choices", CHOICES | {"options": ["A)one", "B)two"], "correct": "B"}, OPTIONS, "B"),
        ("choices", CHOICES | {"options": {"A": "one", "B": "two"}, "answer": "two"}, OPTIONS, "B"),
        (
            "choices",
            CHOICES | {"choices": {"text": ["one", "two"], "label": ["A", "B"]}, "answerKey": "B"},
            OPTIONS,
            "B",
        ),
    ],
)
def test_each_form_has_its_question_and_its_answer(
    form: str, record: dict[str, Any], prompt: str, truth: str
) -> None:
    row = read(record)
    assert (row.form, row.problem.prompt, row.ground_truth, row.ability) == (form, prompt, truth, "math")
    assert row.messages[-1]["role"] == "user"
    assert MathReward(MathConfig()).score(row.problem, f"\\boxed{{{truth}}}").value == 1.0
    assert MathReward(MathConfig()).score(row.problem, "\\boxed{17}").value == 0.0


def test_sampled_solutions_do_not_travel_with_every_answer() -> None:
    record = {"problem": "1+1?", "answer": "2", "generations": ["..."], "messages": ASK, "uuid": "u"}
    assert read(record).extra == {"uuid": "u"}


def test_a_system_message_and_earlier_turns_stay() -> None:
    turns = [{"role": "system", "content": "Be brief."}, *ASK, {"role": "assistant", "content": "?"}, *ASK]
    assert read({"messages": turns, "answer": "2"}).messages == turns


def test_the_text_of_content_parts_is_joined_and_images_are_refused() -> None:
    parts = [{"type": "text", "text": "1+"}, {"type": "text", "text": "1?"}]
    assert read(skywork(0, prompt=[{"role": "user", "content": parts}])).problem.prompt == "1+1?"
    image = {"type": "image_url", "image_url": {"url": "x.png"}}
    with pytest.raises(BadRow, match="part of type 'image_url': only text"):
        read(skywork(0, prompt=[{"role": "user", "content": [image, *parts]}]))
    with pytest.raises(BadRow, match="has images: only text"):
        read(skywork(0, images=["x.png"]))


def test_an_answer_that_is_no_option_is_refused() -> None:
    with pytest.raises(BadRow, match="none of its options"):
        read(CHOICES | {"choices": ["one", "two"], "answer": "three"})


@pytest.mark.parametrize(
    ("record", "rate"),
    [
        ({"problem": "1?", "answer": "1", "llama8b_solve_rate": 0.25}, 0.25),
        ({"problem": "1?", "answer": "1", "llama8b_solve_rate": None}, None),
        ({"conversations": [*ASK, {"from": "assistant", "ground_truth": {"value": 1, "pass_at_n": 1}}]}, 1.0),
        (skywork(4), 0.25),
        (skywork(4, extra_info={}), None),
    ],
)
def test_solve_rates_are_the_prior_difficulty(record: dict[str, Any], rate: float | None) -> None:
    assert read(record, Columns(model="small")).pass_rate == rate


def test_a_solve_rate_is_a_share() -> None:
    with pytest.raises(BadRow, match="llama8b_solve_rate is not a number from 0 to 1"):
        read({"problem": "1?", "answer": "1", "llama8b_solve_rate": 25})


def lcb(private: str, **changes: Any) -> dict[str, Any]:
    public = [{"input": "3 4\n", "output": "7\n", "testtype": "stdin"}]
    row = {"question_content": "Sum?", "starter_code": "", "metadata": "{}", "difficulty": "easy"}
    return row | {"public_test_cases": json.dumps(public), "private_test_cases": private} | changes


@pytest.mark.parametrize("text", [json.dumps(SUM), SUM])
def test_input_output_has_tests_by_standard_input(text: Any) -> None:
    row = read({"question": "Sum?", "input_output": text, "solutions": "[]", "starter_code": ""})
    assert (row.form, row.problem.prompt, row.ability) == ("input_output", "Sum?", "code")
    assert isinstance(read_tests(row.ground_truth), StdinTests)
    assert row.extra["solutions"] == "[]"


def test_the_signature_is_part_of_the_question() -> None:
    tests = {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}
    row = read({"question": "Add.", "starter_code": "def add(a, b):\n", "input_output": json.dumps(tests)})
    assert row.problem.prompt == "Add.\n\nBegin with this code:\n```python\ndef add(a, b):\n```"
    tested = read_tests(row.ground_truth)
    assert isinstance(tested, CallTests)
    assert (tested.function, tested.inputs) == ("add", ([1, 2],))


def test_private_tests_of_livecodebench_are_unpacked() -> None:
    private = json.dumps([{"input": "5 6\n", "output": "11\n", "testtype": "stdin"}])
    for form in (packed(private), private):
        row = read(lcb(form))
        tests = read_tests(row.ground_truth)
        assert isinstance(tests, StdinTests)
        assert (row.form, row.ability, tests.inputs) == ("livecodebench", "code", ("3 4\n", "5 6\n"))
        assert "private_test_cases" not in row.extra


def test_functional_tests_of_livecodebench_have_their_function() -> None:
    case = [{"input": "[1, 2]\n3", "output": "6", "testtype": "functional"}]
    metadata = json.dumps({"func_name": "total"})
    row = read(lcb(packed(json.dumps(case)), public_test_cases=json.dumps(case), metadata=metadata))
    tests = read_tests(row.ground_truth, row.extra)
    assert isinstance(tests, CallTests)
    assert (tests.function, tests.inputs) == ("total", ([[1, 2], 3], [[1, 2], 3]))


ANSWERS = {
    "apps": [None],
    "array": ["2", "4"],
    "blank_lines": ["2", "4"],
    "broken": ["2"],
    "big_math": ["2"],
    "content_parts": ["2"],
    "dapo": ["34"],
    "gsm8k": ["2"],
    "livecodebench": [None, None],
    "messages": ["2", "2"],
    "nemotron_mc": ["B"],
    "openr1": ["2"],
    "orz": ["2"],
    "taco": [None, None],
}


@pytest.mark.skipif(not CASES.is_dir(), reason=f"no folder of public rows at {CASES}")
@pytest.mark.parametrize("name", ANSWERS)
def test_public_rows(name: str) -> None:
    rows = list(read_dataset(next(CASES.glob(f"{name}.*")), Columns(abilities=("math", "code"))))
    assert [None if row.ability == "code" else row.ground_truth for row in rows] == ANSWERS[name]
    assert all(read_tests(row.ground_truth, row.extra) for row in rows if row.ability == "code")
