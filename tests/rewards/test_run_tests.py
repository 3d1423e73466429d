"""Calls and assertions: what a program can and cannot reach, and what counts as its result."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.programs import score_program
from rewards.code.sandbox.container import interpreter, packages
from rewards.config import CodeConfig

ASSERTIONS = {"test": "def check(candidate):\n    assert candidate([2, 1]) == (1, 2)", "entry_point": "order"}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("def order(x): return tuple(sorted(x))", 1.0),
        ("def order(x): return sorted(x)", 0.0),
        ("class Any:\n    def __eq__(self, other): return True\ndef order(x): return Any()", 0.0),
        ("import os\ndef order(x): os._exit(0)", 0.0),
        ("import sys\nsys.exit(0)", 0.0),
        ("def order(x): raise SystemExit(0)", 0.0),
        ("import builtins\nbuiltins.AssertionError = Exception\ndef order(x): return None", 0.0),
        ("def order(x):\n    while True: pass", 0.0),
        ("order = 5", 0.0),
    ],
)
def test_assertions_are_out_of_the_programs_reach(code_config: CodeConfig, source: str, value: float) -> None:
    assert score_program(code_config, source, ASSERTIONS).value == value


@pytest.mark.parametrize(
    ("test", "source", "value"),
    [
        ("assert abs(f(2) - 4.0) < 1e-6", "def abs(x): return 0\ndef f(x): return 9", 0.0),
        ("assert set(f(1)) == set([1, 2])", "def set(x): return 1\ndef f(x): return 1", 0.0),
        ("assert isclose(f(1), 2.5)", "def isclose(*a): return True\ndef f(x): return 1", 0.0),
        ("assert all(map(lambda c: f(c) == 9, [1, 2]))", "def f(x): raise StopIteration", 0.0),
        ("s = Solution()\nassert s.f(2) == 4", "class Solution:\n    def f(self, x): return x * x", 1.0),
        ("s = Solution()\nassert s.f(2) == 4", "class Solution:\n    def f(self, x): return x + 1", 0.0),
        ("assert sum(10, 15) == 6", "def sum(a, b): return 6", 1.0),
        ("assert gcd(10, 15) == 5", "def gcd(a, b): return 6", 0.0),
    ],
)
def test_a_program_reaches_nothing_that_its_tests_rely_on(
    code_config: CodeConfig, test: str, source: str, value: float
) -> None:
    assert score_program(code_config, source, [test]).value == value


NODES = """
class ListNode:
    def __init__(self, val=0, next=None):
        self.val, self.next = val, next
def list_node(values):
    head = None
    for value in reversed(values): head = ListNode(value, head)
    return head
def is_same_list(a, b):
    while a and b and a.val == b.val: a, b = a.next, b.next
    return a is None and b is None
"""
REVERSED = {
    "import_prefix": NODES,
    "test_code": "def check(candidate):\n"
    "    assert is_same_list(candidate(head=list_node(range(300))), list_node(range(299, -1, -1)))\n"
    "    assert candidate(None) is None",
    "entry_point": "Solution().reverse",
}
REVERSE = """
class Solution:
    def reverse(self, head):
        last = None
        while head: head.next, last, head = last, head, head.next
        return last
"""


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (REVERSE, 1.0),
        ("class Solution:\n    def reverse(self, head): return head", 0.0),
        (
            "def is_same_list(a, b): return True\nclass Solution:\n    def reverse(self, head): return None",
            0.0,
        ),
        (
            "class ListNode:\n    def __eq__(self, other): return True\n    val = next = None\n"
            "class Solution:\n    def reverse(self, head): return ListNode()",
            0.0,
        ),
    ],
)
def test_linked_lists_cross_over_as_data(code_config: CodeConfig, source: str, value: float) -> None:
    assert score_program(code_config, source, REVERSED).value == value


def test_in_place_changes_and_errors_cross_over(code_config: CodeConfig) -> None:
    tests = [
        "x = [3, 1]; f(x); assert x == [1, 3]",
        "try:\n    f(5)\nexcept AttributeError:\n    pass\nelse:\n    assert False",
    ]
    assert score_program(code_config, "def f(x): x.sort()", tests).value == 1.0


def _call(name: str, *cases: tuple[list[Any], Any]) -> dict[str, Any]:
    inputs, outputs = [case[0] for case in cases], [case[1] for case in cases]
    return {"type": "functional", "fn_name": name, "inputs": inputs, "outputs": outputs}


GRANTED = ["count", "product", "gcd", "reduce", "deque", "Counter", "sqrt", "pow", "repeat", "accumulate"]


@pytest.mark.parametrize("name", GRANTED)
@pytest.mark.parametrize(
    "form", ["class Solution:\n    def {}(self, x): return x + 41", "def {}(x): return x + 41"]
)
def test_a_function_that_is_called_as_a_granted_name_is_the_programs(
    code_config: CodeConfig, name: str, form: str
) -> None:
    assert score_program(code_config, form.format(name), _call(name, ([1], 42))).value == 1.0
    assert score_program(code_config, form.format(name), _call(name, ([1], 1))).value == 0.0


def test_granted_names_are_there_without_an_import(code_config: CodeConfig) -> None:
    program = "def f(x: List[int]) -> int:\n    return gcd(*x) + len(Counter(x)) + bisect_left(x, 6)"
    assert score_program(code_config, program, _call("f", ([[4, 6]], 5))).value == 1.0


NODES = "class ListNode:\n    def __init__(self, x):\n        self.val = x\n        self.next = None\n"
DEPTH = """class Solution:
    def depth(self, root: Optional[TreeNode]) -> int:
        return 0 if not root else 1 + max(self.depth(root.left), self.depth(root.right))"""
MIRROR = """class Solution:
    def f(self, root: Optional[TreeNode]) -> Optional[TreeNode]:
        if root: root.left, root.right = self.f(root.right), self.f(root.left)
        return root"""
REVERSE_LIST = """class Solution:
    def f(self, head: 'ListNode', unused: int = 0) -> 'ListNode':
        last = None
        while head: head.next, last, head = last, head, head.next
        return last"""
JOIN = """def f(lists: List[Optional[ListNode]]) -> Optional[ListNode]:
    values = []
    for node in lists:
        while node: values.append(node.val); node = node.next
    head = None
    for value in sorted(values, reverse=True): head = ListNode(value, head)
    return head"""
SPLIT = """def f(root: TreeNode) -> List[TreeNode]:
    return [root.left, root.right]"""
CYCLE = """def f(head: ListNode) -> ListNode:
    head.next = head
    return head"""


@pytest.mark.parametrize(
    ("program", "cases", "value"),
    [
        (DEPTH.replace("depth", "f"), [([[3, 9, 20, None, None, 15, 7]], 3), ([[]], 0), ([None], 0)], 1.0),
        (DEPTH.replace("depth", "f"), [([[3, 9, 20, None, None, 15, 7]], 4)], 0.0),
        (MIRROR, [([[4, 2, 7, 1, None, 6]], [4, 7, 2, None, 6, None, 1]), ([[]], [])], 1.0),
        (MIRROR, [([[4, 2, 7]], [4, 2, 7])], 0.0),
        (
            REVERSE_LIST,
            [([[1, 2, 3]], [3, 2, 1]), ([[]], []), ([list(range(5000))], [*range(4999, -1, -1)])],
            1.0,
        ),
        (REVERSE_LIST, [([[1, 2, 3], 7], [1, 2, 3])], 0.0),
        (f"{NODES}{REVERSE_LIST}", [([[1, 2, 3]], [3, 2, 1])], 1.0),
        (JOIN, [([[[1, 4], [], [2]]], [1, 2, 4]), ([[]], [])], 1.0),
        (SPLIT, [([[1, 2, 3]], [[2], [3]])], 1.0),
        (CYCLE, [([[1]], [1])], 0.0),
        ("def f(root): return root[1]", [([[1, 2]], 2)], 1.0),
    ],
)
def test_nodes_are_built_where_annotations_name_them(
    code_config: CodeConfig, program: str, cases: list[Any], value: float
) -> None:
    assert score_program(code_config, program, _call("f", *cases)).value == value


@pytest.mark.parametrize(
    ("program", "value"),
    [
        ("def f(x): x.reverse()", 1.0),
        ("class Solution:\n    def f(self, x: List[str]) -> None:\n        x.reverse()", 1.0),
        ("def f(x): x.reverse(); return x", 1.0),
        ("def f(x): pass", 0.0),
        ("def f(x): return x", 0.0),
        ("def f(x): x.reverse(); return 5", 0.0),
        ("def f(x) -> int: x.reverse()", 0.0),
        ("def f(x): x = x[::-1]", 0.0),
    ],
)
def test_an_answer_in_place_is_the_first_argument(
    code_config: CodeConfig, program: str, value: float
) -> None:
    assert score_program(code_config, program, _call("f", ([["a", "b"]], ["b", "a"]))).value == value


def test_a_tree_may_be_changed_in_place(code_config: CodeConfig) -> None:
    program = "def f(root: Optional[TreeNode]) -> None:\n    root.left, root.right = root.right, root.left"
    assert score_program(code_config, program, _call("f", ([[1, 2, 3]], [1, 3, 2]))).value == 1.0


def test_none_is_a_result_like_others(code_config: CodeConfig) -> None:
    assert score_program(code_config, "def f(x): x.append(1)", _call("f", ([[1]], None))).value == 1.0


@pytest.mark.parametrize("unsafe", [False, True])
def test_what_public_sets_import_is_there(code_config: CodeConfig, unsafe: bool) -> None:
    if not packages(interpreter("auto")):
        pytest.skip("no interpreter of this environment's version that every user can read")
    config = code_config.model_copy(update={"unsafe": unsafe, "wall_seconds": 20, "cpu_seconds": 20})
    program = (
        "import numpy as np\nfrom sortedcontainers import SortedList\n"
        "print(SortedList(np.array(list(map(int, input().split()))).cumsum().tolist())[-1])"
    )
    assert score_program(config, program).verdict == "correct"
