"""Which part of a response is its program."""

from __future__ import annotations

import pytest

from rewards.code.program import last_program

PROGRAMS = [
    ("```python\na\n```", "a\n"),
    ("```python\na\n```\nthen\n```python\nb\n```", "b\n"),
    ("```python\na\n```\nprints\n```\n3 5\n```", "a\n"),
    ("```\na\n```", "a\n"),
    ("```py3\na\n```", "a\n"),
    ("~~~python\na\n~~~", "a\n"),
    ("````python\na = '''\n```\n'''\n````", "a = '''\n```\n'''\n"),
    ("1. So\n   ```python\n   a\n   ```", "a\n"),
    ("```cpp\na\n```", None),
    ("```python\n\n```", None),
    ("no fence", None),
    ("<think>\n```python\na\n```\n</think>\nnothing", None),
    ("<think>\n```python\na\n```", None),
    ("```python\na\n", "a\n"),
]


@pytest.mark.parametrize(("response", "program"), PROGRAMS)
def test_last_program(response: str, program: str | None) -> None:
    assert last_program(response) == program


def test_a_program_that_was_cut_off_is_none() -> None:
    assert last_program("```python\na\n", truncated=True) is None
