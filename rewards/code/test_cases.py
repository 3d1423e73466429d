"""Tests in the forms of datasets, read into three kinds: standard input, function calls, and test code."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class UnusableTests(ValueError):
    """The row's tests cannot be read; the message names the field."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The accepted results of a test: any of ``values``. unordered: the order of lists, at any depth, does
    not matter."""

    values: tuple[Any, ...]
    unordered: bool = False


@dataclass(frozen=True, slots=True)
class StdinTests:
    """Scripts: text in, text out. checker: source of ``check(input, output, expected) -> bool``, or ""."""

    inputs: tuple[str, ...]
    outputs: tuple[Expected, ...]
    checker: str = ""


@dataclass(frozen=True, slots=True)
class CallTests:
    """Calls of one function, or of one method of ``class Solution``."""

    function: str
    inputs: tuple[list[Any], ...]
    outputs: tuple[Expected, ...]
    checker: str = ""


@dataclass(frozen=True, slots=True)
class CodeTests:
    """Test code with assertions. entry: the expression it gets as ``candidate``. prefix: code before the
    program (imports, or the signature and helpers that the prompt showed)."""

    source: str
    entry: str
    prefix: str = ""


Tests = StdinTests | CallTests | CodeTests

ASSERTIONS = ("test", "test_code", "assert_case", "test_list")
"""Keys with test code: a text, or a list of assertions."""

CASES = ("test_cases", "public_test_cases", "private_test_cases")
"""Keys with LiveCodeBench's cases."""

BESIDE = (
    *("entry_point", "import_prefix", "test_setup_code", "fn_name", "func_name", "type", "metadata"),
    *("checker", "unordered"),
)
"""Keys that specify how the tests are run."""


def plain_tests(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the tests of a record that has them in columns of their own; None if it has none.

    A signature that the prompt shows (HumanEval) is part of them: a response may continue it.
    """
    found = {key: record[key] for key in (*ASSERTIONS, *CASES) if _holds_tests(record.get(key))}
    if all(isinstance(record.get(key), list) for key in ("inputs", "outputs")):
        found |= {"inputs": record["inputs"], "outputs": record["outputs"]}
    if not found:
        return None
    found |= {key: record[key] for key in BESIDE if record.get(key) is not None}
    prompt, entry = record.get("prompt"), found.get("entry_point")
    if entry and isinstance(prompt, str) and re.search(rf"^def {re.escape(str(entry))}\b", prompt, re.M):
        found["prompt"] = prompt
    return found


def _holds_tests(value: Any) -> bool:
    return bool(value) if isinstance(value, list) else isinstance(value, str) and bool(TESTLIKE.search(value))


TESTLIKE = re.compile(r"\bassert\b|\bdef check\b|^\s*\[")
"""What a text with tests contains, as opposed to any column that is called ``test``."""


def read_tests(truth: Any, extra: Mapping[str, Any] | None = None) -> Tests:
    """Return the tests in a row's ``ground_truth``: JSON text or the object itself.

    Known forms: ``{"type": "stdin_stdout" | "functional", "inputs", "outputs", "fn_name"}`` (Skywork, TACO
    without ``type``), a list of ``{"input", "output", "testtype"}`` (LiveCodeBench), ``{"test" | "test_code",
    "entry_point"}`` (HumanEval, LeetCode), assertions in ``test_list``, ``assert_case`` or a list of strings
    (MBPP).
    """
    data = _loaded(truth)
    extra = extra or {}
    if isinstance(data, list):
        data = {"assert_case": data} if data and isinstance(data[0], str) else {"test_cases": data}
    if not isinstance(data, dict):
        raise UnusableTests(f"ground_truth: tests must be an object or a list, not {type(data).__name__}")
    data = {key: value for key, value in data.items() if value is not None}  # Arrow pads rows with nulls
    for key in ASSERTIONS:
        if key in data:
            return _code(data, data[key])
    cases = _cases(data)
    if cases is not None:
        return _live_code_bench(cases, data, extra)
    if "inputs" not in data or "outputs" not in data:
        raise UnusableTests(f"ground_truth: no tests among the keys {sorted(data)}")
    return _in_out(data)


def _loaded(truth: Any) -> Any:
    if not isinstance(truth, str):
        return truth
    try:
        return json.loads(truth)
    except ValueError:
        if re.match(r"\s*(?:assert|def check|from|import)\b", truth):
            return [truth]
        raise UnusableTests("ground_truth: tests are neither JSON nor assertions") from None


def _code(data: Mapping[str, Any], tests: Any) -> CodeTests:
    source = "\n".join(tests) if isinstance(tests, list) else str(tests)
    entry = str(data.get("entry_point") or "")
    if re.search(r"^def check\(", source, re.M) and not re.search(r"^check\(", source, re.M):
        source += "\ncheck(candidate)"
    prefix = [data.get(key, "") for key in ("import_prefix", "test_setup_code", "prompt")]
    return CodeTests(source, entry, "\n".join(part for part in prefix if part))


def _cases(data: Mapping[str, Any]) -> list[Any] | None:
    """Return LiveCodeBench's cases, public ones included; None if the row has another form."""
    keys = [key for key in CASES if key in data]
    return [case for key in keys for case in _case_list(key, data[key])] if keys else None


def _case_list(key: str, cases: Any) -> list[Any]:
    if isinstance(cases, str):
        try:
            cases = json.loads(cases)
        except ValueError:
            raise UnusableTests(
                f"{key}: not JSON; compressed pickles are not read, convert them first"
            ) from None
    if not isinstance(cases, list):
        raise UnusableTests(f"{key}: must be a list")
    return cases


def _live_code_bench(cases: list[Any], data: Mapping[str, Any], extra: Mapping[str, Any]) -> Tests:
    metadata = data.get("metadata") or extra.get("metadata") or {}
    metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    name = data.get("fn_name") or metadata.get("func_name") or extra.get("func_name")
    functional = any(case.get("testtype") == "functional" for case in cases)
    if not functional:
        return _in_out({"inputs": [c["input"] for c in cases], "outputs": [c["output"] for c in cases]})
    if not name:
        raise UnusableTests("metadata.func_name: missing for functional tests")
    inputs = [[json.loads(line) for line in case["input"].splitlines() if line.strip()] for case in cases]
    return _in_out({"fn_name": name, "type": "functional", "inputs": inputs,
                    "outputs": [json.loads(case["output"]) for case in cases]})  # fmt: skip


def _in_out(data: Mapping[str, Any]) -> Tests:
    inputs, outputs = data["inputs"], data["outputs"]
    if (
        not isinstance(inputs, list)
        or not isinstance(outputs, list)
        or len(inputs) != len(outputs)
        or not inputs
    ):
        raise UnusableTests("inputs, outputs: must be lists of the same length, at least one")
    checker, unordered = str(data.get("checker") or ""), bool(data.get("unordered"))
    name = data.get("fn_name") or data.get("func_name")
    if not name or data.get("type") == "stdin_stdout":
        accepted = tuple(Expected(_alternatives(one, _text), unordered) for one in outputs)
        return StdinTests(tuple(map(_text, inputs)), accepted, checker)
    wrapped = data.get("type") is None and all(isinstance(one, list) and len(one) == 1 for one in outputs)
    values = [one[0] for one in outputs] if wrapped else outputs  # TACO and APPS put each result in a list
    arguments = tuple(one if isinstance(one, list) else [one] for one in inputs)
    accepted = tuple(Expected(_alternatives(one, lambda value: value), unordered) for one in values)
    return CallTests(str(name), arguments, accepted, checker)


def _alternatives(output: Any, read: Any) -> tuple[Any, ...]:
    """Return the accepted outputs: several for ``{"any_of": [...]}``."""
    if isinstance(output, dict) and set(output) == {"any_of"}:
        return tuple(map(read, output["any_of"]))
    return (read(output),)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value)
