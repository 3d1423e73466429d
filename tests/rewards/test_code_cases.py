"""The graded programs beside the checkout, through the pool."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.programs import fenced, score_in_pool
from rewards.code.sandbox import container
from rewards.config import CodeConfig
from rewards.reward import Problem


def _in_sandbox() -> set[int]:
    """Return the processes of this machine that run under the users that programs get."""
    found = set()
    for folder in Path("/proc").iterdir():
        try:
            if (
                folder.name.isdecimal()
                and container.FIRST_UID <= folder.stat().st_uid < container.FIRST_UID + 4000
            ):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                found |= {int(folder.name)} if state not in "ZX" else set()
        except OSError:
            continue
    return found


def test_graded_cases_get_their_value_and_leave_nothing_behind(
    code_config: CodeConfig, cases: Callable[[str], list[dict[str, Any]]]
) -> None:
    rows, before = cases("cases/code.jsonl"), _in_sandbox()
    items = [(Problem("code", json.dumps(row["tests"])), row["response"] or "") for row in rows]
    pairs = list(zip(rows, score_in_pool(code_config, items, workers=5), strict=True))
    assert [(row["id"], score) for row, score in pairs if score.value != row["expected"]] == []
    assert [row["id"] for row, score in pairs if score.verdict in ("error", "timeout")] == []
    forbidden = [path for row in rows for path in (row.get("checks") or {}).get("must_not_exist", [])]
    assert forbidden
    assert [path for path in forbidden if os.path.exists(path)] == []
    _wait_until_only(before)


def _wait_until_only(before: set[int]) -> None:
    """Workers take their sandboxes along when their pool is closed."""
    deadline = time.monotonic() + 5
    while left := _in_sandbox() - before:
        assert time.monotonic() < deadline, f"programs survive: {left}"
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


def test_human_eval_s_solutions_are_right_until_they_are_changed(
    code_config: CodeConfig, cases: Callable[[str], list[dict[str, Any]]]
) -> None:
    """Every canonical solution is right, and wrong once its return value is changed."""
    items = []
    rows = cases("data/humaneval.jsonl.gz")
    for row in rows:
        tests = json.dumps({key: row[key] for key in ("test", "entry_point", "prompt")})
        whole = row["prompt"] + row["canonical_solution"]
        changed = whole + CHANGED.format(entry=row["entry_point"])
        items += [(Problem("code", tests), fenced(whole)), (Problem("code", tests), fenced(changed))]
    scores = score_in_pool(code_config, items, workers=2)
    assert [row["task_id"] for row, score in zip(rows, scores[::2], strict=True) if score.value != 1.0] == []
    assert [
        row["task_id"] for row, score in zip(rows, scores[1::2], strict=True) if score.verdict != "wrong"
    ] == []
