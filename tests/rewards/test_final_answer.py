"""Which part of a response is its answer."""

from __future__ import annotations

import pytest

from rewards.math.extract.final_answer import final_answer

BOXED = [
    (r"so \boxed{\frac{1}{2}} it is", r"\frac{1}{2}"),
    (r"\boxed{1} then \boxed{2}", "2"),
    (r"\boxed{5} and, as asked, in \boxed{}", None),
    (r"\boxed{5}, so \boxed{ \, }", None),
    (r"\boxed{5} or \boxed{\text{}}", None),
    (r"\boxed{5} or \boxed{\boxed{}}", None),
    (r"\boxed{5}, and finally \boxed{6", None),
    (r"\boxed{}, \boxed{5}", "5"),
    (r"First \boxed{4, no: \boxed{5}", "5"),
    (r"\boxed{" * 3000 + r"5 \boxed{6}", "6"),
    (r"\boxed{\{\}}", r"\{\}"),
    (r"\boxed{\boxed{7}}", "7"),
    (r"\boxed {8}", "8"),
    (r"\fbox{9}", "9"),
    (r"\boxed{\{1,2\}}", r"\{1,2\}"),
    (r"<think> \boxed{1} </think> \boxed{2}", "2"),
    (r"old thought \boxed{1}</think> \boxed{2}", "2"),
    (r"<think>a</think> <think>\boxed{3}</think> none", None),
    (r"<think> \boxed{1} and on", None),
    (r"<think> \boxed{1} </think> no box here", None),
    (r"cut off in \boxed{12", None),
    (r"\boxed{3}, \boxed{4} and \boxed{5}", "3 , 4 , 5"),
    (r"x = \boxed{3}, y = \boxed{4}", "3 , 4"),
    (r"\[ \boxed{3} \quad \text{and} \quad \boxed{4}. \]", "3 , 4"),
    (r"\boxed{5}. Again: \boxed{5}", "5"),
    ("put it in \\boxed and stop", None),
    (r"It is not $\boxed{5}$", None),
    (r"\boxed{1} \boxed{2} \boxed{3}", "1 , 2 , 3"),
    ("\\boxed{3}\n\\boxed{3}", "3"),
    (r"\boxed{5} Actually, that is wrong. \boxed{}", None),
    (r"\boxed{4} Wait, that's wrong. \boxed{5}", "5"),
    (r"<THINK>\boxed{7}", None),
    (r"<think>a</think> \boxed{7} <think> or \boxed{8}", None),
    ("\n" * 50_000 + r"\boxed{17}" + "\n" * 50_000, "17"),
    (r"Not that one, so $\boxed{5}$", "5"),
    ("", None),
]


@pytest.mark.parametrize(("response", "answer"), BOXED)
def test_the_last_box_is_the_answer(response: str, answer: str | None) -> None:
    assert final_answer(response, boxed_only=True) == answer


STATED = [
    ("The answer is 12.", "12"),
    ("\\boxed{}\n**Answer: D**", "D"),
    ("The answer is 7. So \\boxed{}", None),
    ("**Answer:** $\\frac{1}{2}$", "\\frac{1}{2}"),
    ("Final answer: 3.5\n", "3.5"),
    ("The answer is 5 because it must be.", "5"),
    ("The answer is 4. No wait, the answer is 5.", "5"),
    ("答案是 15 厘米。", "15 厘米"),
    ("#### 18", "18"),
    ("We add. So the total is 42", "42"),
    ("So the loss is 28 percent.", "28 percent"),
    ("First $3 \\cdot 4 = 12$. Next we subtract the overlap, which", None),
    ("There are 5 of them somewhere", None),
    ("\\boxed{C} looked right.\n**Answer: D**", "D"),
    ("The answer is 7. Wait, it is \\boxed{5}", "5"),
    ("42", "42"),
    ("Therefore $x \\ge 5$ is the solution.", "x \\ge 5"),
    ("We find that $x < 3$.", "x < 3"),
    ("Answer \\[ 9 \\]", "9"),
    ("Here is the matrix: $M$", "M"),
    ("Final Answer: The largest $n$ is 34. I hope it is correct.", "34"),
    ("**Final Answer**\n\n7", "7"),
    ("So the odds are 2/3. <|im_start|>user And now?", "2/3"),
    ("The list is 1, 2, 3, ...", "1, 2, 3, ..."),
    ("We get 42.", "42"),
    ("So, x = 3 or x = 4.", "3 or x = 4"),
    ("The correct answer is (B).", "(B)"),
    ("The answer should be 6", "6"),
    ("The answer is therefore $5$", "5"),
    ("<think>a</think><answer> 5 </answer>", "5"),
    ("The answer is 5<|im_end|>", "5"),
    ("The final answer is: $\\boxed{12}$. I hope it is correct.", "12"),
    ("The answer is $5$, which is prime.", "5"),
    ("Therefore the area equals 12 square meters.", "12 square meters"),
    ("After checking, 5 works and 6 does not.", None),
    ("I am thinking about it", None),
    ("Therefore option (C) is correct.", "C"),
    ("The answer is 7? No.", None),
    ("The answer is 7.\n\nWait, that's wrong. It should be 8.", None),
    ("The answer is 7. Wait, that is wrong. The answer is 8.", "8"),
    ("The answer is 7!", "7"),
    ("Therefore option (C) is incorrect. Answer: D", "D"),
    ("因此,故选 C。", "C"),
    ("Therefore, the answer is $10$ square meters.", "$10$ square meters"),
    ("The answer is $\\underline{13}$.", "\\underline{13}"),
]


@pytest.mark.parametrize(("response", "answer"), STATED)
def test_a_clear_statement_is_the_answer(response: str, answer: str | None) -> None:
    assert final_answer(response, boxed_only=False) == answer


def test_a_statement_does_not_count_where_only_boxes_do_or_the_end_is_missing() -> None:
    assert final_answer("The answer is 12", boxed_only=True) is None
    assert final_answer("The answer is 12", boxed_only=False, truncated=True) is None
    assert final_answer("\\boxed{12} and then", boxed_only=False, truncated=True) == "12"
