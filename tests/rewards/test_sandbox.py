"""Programs behind the wall: right verdicts, nothing gets out, nothing stays."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rewards.code.reward import CodeReward
from rewards.code.run_tests import close_referees
from rewards.code.sandbox import container, probe
from rewards.code.sandbox.cgroup import ROOT, descendants
from rewards.code.sandbox.sandbox import Sandbox, SandboxBroken
from rewards.config import CodeConfig, RewardsConfig
from rewards.pool.pool import GraderPool
from rewards.pool.registry import Graders
from rewards.reward import Problem, Score

SUM = {"type": "stdin_stdout", "inputs": ["3 5\n", "1 1\n"], "outputs": ["8\n", "2\n"]}


def _fenced(source: str) -> str:
    return f"```python\n{source}\n```"


def _score(config: CodeConfig, source: str, tests: Any = SUM) -> Score:
    return CodeReward(config).score(Problem("code", json.dumps(tests)), _fenced(source))


def test_a_right_and_a_wrong_program(code_config: CodeConfig) -> None:
    assert _score(code_config, "a, b = map(int, input().split())\nprint(a + b)").verdict == "correct"
    wrong = _score(code_config, "a, b = map(int, input().split())\nprint(a * b)")
    assert (wrong.value, wrong.verdict) == (0.0, "wrong")
    assert wrong.detail == "test 1 of 2: input 3 5: expected 8, got 15"


def test_fractional_rewards(code_config: CodeConfig) -> None:
    config = code_config.model_copy(update={"fractional": True})
    assert _score(config, "print(2)").value == 0.5


CHECKER = "def check(input, output, expected):\n    return int(output) % 2 == int(expected) % 2"


def test_a_checker_that_comes_with_the_problem(code_config: CodeConfig) -> None:
    assert _score(code_config, "print(10)", {**SUM, "checker": CHECKER}).value == 1.0
    assert _score(code_config, "print(11)", {**SUM, "checker": CHECKER}).value == 0.0
    broken = _score(code_config, "print(11)", {**SUM, "checker": "def check(*a): return 1 / 0"})
    assert broken.verdict == "error"


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
    assert _score(code_config, source, ASSERTIONS).value == value


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
    assert _score(code_config, source, [test]).value == value


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
    assert _score(code_config, source, REVERSED).value == value


def test_in_place_changes_and_errors_cross_over(code_config: CodeConfig) -> None:
    tests = [
        "x = [3, 1]; f(x); assert x == [1, 3]",
        "try:\n    f(5)\nexcept AttributeError:\n    pass\nelse:\n    assert False",
    ]
    assert _score(code_config, "def f(x): x.sort()", tests).value == 1.0


HOSTILE = {
    "reads its parent": """
import os
print(open(f"/proc/{os.getppid()}/environ").read())
""",
    "kills everything": """
import os, signal
os.kill(-1, signal.SIGKILL)
""",
    "stops its parent": """
import os, signal
os.kill(os.getppid(), signal.SIGSTOP)
print(8)
""",
    "forges a report": """
import os, struct
for fd in range(3, 30):
    for pid in (1, os.getppid()):
        try:
            out = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)
            os.write(out, struct.pack(">II", 2, 2) + b"{}8")
        except OSError: pass
""",
    "hides memory": """
x = []
while True:
    x.append(bytearray(1 << 20))
""",
    "hides memory in children": """
import os, time
for _ in range(20):
    if os.fork() == 0:
        x = bytearray(100 << 20)
        for i in range(0, len(x), 4096): x[i] = 1
        time.sleep(9)
time.sleep(9)
""",
    "hides memory in files": """
for n in range(100):
    for folder in ("/tmp", "/dev/shm", "/dev", "/"):
        try:
            with open(f"{folder}/{n}", "wb") as f: f.write(b"x" * (8 << 20))
        except OSError: pass
print(8)
""",
    "leaves a daemon": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
print(8)
""",
    "prints a deep list": """
x = []
for _ in range(100000): x = [x]
print(x)
""",
    "takes over its parent by ptrace": """
import ctypes
libc = ctypes.CDLL(None)
for pid in range(1, 20):
    libc.ptrace(16, pid, 0, 0)
    libc.ptrace(8, pid, 0, 0)
print(8)
""",
    "mounts and unshares": """
import ctypes, os
libc = ctypes.CDLL(None)
libc.unshare(0x10000000)
libc.mount(b"x", b"/tmp", b"tmpfs", 0, 0)
for uid in (0, 1000):
    try: os.setuid(uid)
    except OSError: pass
print(os.getuid() == 0)
""",
    "locks its folders and digs deep": """
import os
os.makedirs("a/b"); os.chmod("a/b", 0); os.chmod("a", 0)
for _ in range(2000):
    os.mkdir("d"); os.chdir("d")
""",
    "fills memory with files in memory": """
import os
fd = os.memfd_create("x")
for _ in range(100): os.write(fd, b"x" * (64 << 20))
""",
    "starts threads without end": """
import threading, time
while True: threading.Thread(target=time.sleep, args=(30,)).start()
""",
    "stops itself": """
import os, signal
os.kill(os.getpid(), signal.SIGSTOP)
""",
    "writes without end": """
while True: print("y" * 1000)
""",
}


@pytest.mark.parametrize("trick", HOSTILE)
def test_hostile_programs_gain_nothing_and_leave_nothing(code_config: CodeConfig, trick: str) -> None:
    close_referees()
    others, began = set(descendants(os.getpid())), time.monotonic()
    score = _score(code_config, HOSTILE[trick], {**SUM, "outputs": ["?\n", "?\n"]})
    assert score.value == 0.0
    assert score.verdict == "wrong", score
    assert set(descendants(os.getpid())) <= others
    assert time.monotonic() - began < 30


def _in_sandbox() -> list[int]:
    """Processes of this machine that run under the users that programs get."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if (
                folder.name.isdecimal()
                and container.FIRST_UID <= folder.stat().st_uid < container.FIRST_UID + 4000
            ):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                found += [int(folder.name)] if state not in "ZX" else []
        except OSError:
            continue
    return found


def test_memory_is_bounded_over_all_processes(code_config: CodeConfig) -> None:
    """Twenty children of 100 MiB each never get near 2 GiB, with a cgroup or by watching."""
    peak = 0
    with Sandbox(code_config) as sandbox:
        sandbox.load(HOSTILE["hides memory in children"])
        sandbox.send(sandbox._limited({"op": "stdin"}, 2.0))
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            pages = 0
            for pid in descendants(sandbox._process.pid):
                try:
                    pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                except OSError:
                    continue
            peak = max(peak, pages * os.sysconf("SC_PAGE_SIZE"))
            if sandbox._cgroup is None:
                try:
                    sandbox._watch()
                except SandboxBroken:
                    break
    assert 0 < peak < 3 * code_config.memory_bytes


def test_one_test_finds_nothing_of_the_one_before(code_config: CodeConfig) -> None:
    with Sandbox(code_config) as sandbox:
        sandbox.load(
            "import os\nprint(os.listdir('/tmp') + os.listdir('/dev/shm'))\n"
            "open('/tmp/x', 'w')\n"
            "os.makedirs('/dev/shm/a/b')"
        )
        assert [sandbox.run(b"").output for _ in range(2)] == [b"[]\n", b"[]\n"]


def test_no_cgroup_is_left_behind(code_config: CodeConfig) -> None:
    before = set(ROOT.glob("*/magicrl-*"))
    _score(code_config, "print(8)")
    assert set(ROOT.glob(f"*/magicrl-{os.getpid()}-*")) <= before


def test_programs_are_refused_where_the_sandbox_is_missing_or_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    config = CodeConfig(wall_seconds=2.25)
    monkeypatch.setenv("PATH", "/nonexistent")
    missing = _score(config, "print(8)")
    assert missing.verdict == "error"
    assert "not found" in missing.detail
    assert "rewards.code.unsafe" in missing.detail
    monkeypatch.undo()
    monkeypatch.setattr(probe, "escapes", lambda config: ["wrote /etc/x"])
    leaking = _score(config, "print(8)")
    assert leaking.verdict == "error"
    assert "wrote /etc/x" in leaking.detail
    graders = Graders(RewardsConfig(code=config))
    assert "wrote /etc/x" in graders.refusal({"math", "code"})
    assert graders.refusal({"math"}) == ""


def test_unsafe_runs_without_a_sandbox_and_says_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    config = CodeConfig(unsafe=True, wall_seconds=2)
    assert _score(config, "a, b = map(int, input().split())\nprint(a + b)").value == 1.0
    assert _score(config, "while True: pass").value == 0.0
    assert _score(config, "def order(x): return tuple(sorted(x))", ASSERTIONS).value == 1.0


def test_enforcement_says_what_works(code_config: CodeConfig) -> None:
    rows = {row.name: row for row in probe.enforcement(code_config)}
    assert rows["isolation"].works
    assert all(row.works or row.fix for row in rows.values())


def _graded(config: CodeConfig, items: list[tuple[Problem, str]], workers: int) -> list[Score]:
    config = config.model_copy(update={"memory_bytes": 1 << 30, "total_seconds": 60})
    with GraderPool(RewardsConfig(workers=workers, code=config)) as pool:
        return pool.score_many(items)


def test_graded_cases(code_config: CodeConfig, cases: Callable[[str], list[dict[str, Any]]]) -> None:
    rows = cases("cases/code.jsonl")
    items = [(Problem("code", json.dumps(row["tests"])), row["response"] or "") for row in rows]
    pairs = list(zip(rows, _graded(code_config, items, workers=5), strict=True))
    assert [(row["id"], score) for row, score in pairs if score.value != row["expected"]] == []
    assert [row["id"] for row, score in pairs if score.verdict in ("error", "timeout")] == []
    forbidden = [path for row in rows for path in (row.get("checks") or {}).get("must_not_exist", [])]
    assert forbidden
    assert [path for path in forbidden if os.path.exists(path)] == []
    _wait_until_none_is_left()


def _wait_until_none_is_left() -> None:
    """Workers take their sandboxes along when their pool is closed."""
    deadline = time.monotonic() + 5
    close_referees()
    while _in_sandbox():
        assert time.monotonic() < deadline, f"programs survive: {_in_sandbox()}"
        time.sleep(0.02)


CHANGED = """
_original = {entry}
def {entry}(*args):
    value = _original(*args)
    if isinstance(value, bool): return not value
    if isinstance(value, (int, float)): return value + 1
    if isinstance(value, str): return value + "x"
    if isinstance(value, (list, tuple)): return value + type(value)([0])
    return 0 if value is None else None
"""


def test_human_eval(code_config: CodeConfig, cases: Callable[[str], list[dict[str, Any]]]) -> None:
    """Every canonical solution is right, and wrong once its return value is changed."""
    items = []
    rows = cases("data/humaneval.jsonl.gz")
    for row in rows:
        tests = json.dumps({key: row[key] for key in ("test", "entry_point", "prompt")})
        whole = row["prompt"] + row["canonical_solution"]
        changed = whole + CHANGED.format(entry=row["entry_point"])
        items += [(Problem("code", tests), _fenced(whole)), (Problem("code", tests), _fenced(changed))]
    scores = _graded(code_config, items, workers=2)
    assert [row["task_id"] for row, score in zip(rows, scores[::2], strict=True) if score.value != 1.0] == []
    assert [
        row["task_id"] for row, score in zip(rows, scores[1::2], strict=True) if score.verdict != "wrong"
    ] == []
