"""One dataset row, from records of every known form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buffer.prompts.forms import final_answer
from buffer.prompts.record import read_row, without_none
from buffer.prompts.row import BadRow, Columns
from helpers.dataset_files import skywork
from rewards.code.test_cases import read_tests
from rewards.config import MathConfig
from rewards.math.reward import MathReward


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


def test_a_column_that_is_only_called_test_has_no_tests() -> None:
    row = read_row({"question": "1 + 1?", "answer": "2", "test": "yes", "inputs": 3}, 0, "mine", Columns())
    assert (row.ability, row.ground_truth) == ("math", "2")


def test_named_columns_and_instruction() -> None:
    columns = Columns(question="ask", answer="key", instruction="Use \\boxed{}.", ability="code")
    key = '["assert 1 + 1 == 2"]'
    row = read_row({"ask": "1 + 1?", "key": key, "question": "no", "answer": "no"}, 0, "mine", columns)
    assert row.messages[0]["content"] == "1 + 1? Use \\boxed{}."
    assert row.ability == "code"
    again = read_row({"ask": row.messages[0]["content"], "key": key}, 0, "mine", columns)
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
        (skywork(0, reward_model={"ground_truth": "\\frac{1}{2"}), "grader cannot read: its braces"),
        (skywork(0, ability="code", reward_model={"ground_truth": "no tests"}), "tests are neither JSON"),
        (skywork(0, ability="code", reward_model={"ground_truth": '[{"input": "1"}]'}), "tests that its gra"),
        ({"question": "1 + 1?", "answer": float("inf")}, "number beyond what JSON readers take"),
        ({"question": "\ud800", "answer": "2"}, "lone surrogate"),
        ({"question": "1 + 1?", "answer": "2", "source": "\ud800"}, "lone surrogate"),
        ({"question": "1 + 1?", "answer": ["", " "]}, "has no answer"),
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


def test_the_case_of_an_ability_does_not_matter() -> None:
    assert read_row(skywork(0, ability="MATH"), 0, "mine", Columns()).ability == "math"
    assert read_row(skywork(0, ability="MATH"), 0, "mine", Columns(abilities=("Math",))).ability == "Math"


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
