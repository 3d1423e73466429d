"""The quickstart's problems: solutions right, train and test apart, rows as the dataset reader wants them."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from buffer.prompts.dataset import read_dataset
from ops.quickstart.problems import TEST_PROBLEMS, Addition, split, write_problems

two_digits = st.integers(10, 99)


def test_a_solution_written_out_by_hand() -> None:
    assert Addition(47, 85).question == "47+85="
    assert Addition(47, 85).solution == "7+5=12, 4+8+1=13, \\boxed{132}"
    assert Addition(10, 20).solution == "0+0=0, 1+2+0=3, \\boxed{30}"


@given(two_digits, two_digits)
def test_every_line_of_a_solution_is_true_and_its_box_is_the_sum(a: int, b: int) -> None:
    problem = Addition(a, b)
    *sums, box = problem.solution.split(", ")
    for line in sums:
        left, right = line.split("=")
        assert sum(map(int, left.split("+"))) == int(right)
    assert box == f"\\boxed{{{a + b}}}"
    assert problem.solved_by(problem.solution)
    assert not problem.solved_by(problem.solution.replace(box, f"\\boxed{{{a + b + 1}}}"))
    assert not problem.solved_by(problem.solution + ", \\boxed{0}")


def test_train_and_test_share_no_pair_in_either_order() -> None:
    train, test = split()
    assert len(test) == TEST_PROBLEMS
    assert len({tuple(sorted(p)) for p in test}) == TEST_PROBLEMS
    assert not {tuple(sorted(p)) for p in test} & {tuple(sorted(p)) for p in train}
    twins = sum(p.a != p.b for p in test)
    assert len(train) == len(set(train)) == 90 * 90 - TEST_PROBLEMS - twins
    assert split() == (train, test)


def test_the_files_are_rows_of_the_dataset_reader(tmp_path: Path) -> None:
    paths = write_problems(tmp_path / "made")
    assert write_problems(tmp_path / "made") == paths  # again, over the first
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["test.parquet", "train.parquet"]
    for path, problems in zip(paths, split(), strict=True):
        dataset = read_dataset(path)
        assert not dataset.skipped
        assert [(row.messages[0]["content"], row.ground_truth) for row in dataset] == [
            (problem.question, problem.answer) for problem in problems
        ]
        assert {row.ability for row in dataset} == {"math"}
