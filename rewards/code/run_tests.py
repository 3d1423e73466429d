"""Runs a program's tests in a sandbox and judges each outcome outside of it."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rewards.code.outputs import same_text, same_value
from rewards.code.sandbox import values
from rewards.code.sandbox.sandbox import Outcome, Sandbox, SandboxBroken
from rewards.code.test_cases import CallTests, CodeTests, Expected, StdinTests, Tests
from rewards.config import CodeConfig


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One test's result; detail: why it failed."""

    passed: bool
    detail: str = ""


def run_tests(
    tests: Tests, program: str, config: CodeConfig, *, bare: bool
) -> Generator[CaseResult, None, None]:
    """Yield results test by test, lazily: a caller that stops early runs no more tests.

    Once a sandbox is lost, the remaining tests fail. Raises SandboxUnavailable.
    """
    with Sandbox(config, bare=bare) as sandbox:
        deadline = time.monotonic() + config.total_seconds
        if isinstance(tests, CodeTests):
            yield _run_test_code(tests, program, sandbox, deadline, bare=bare)
            return
        sandbox.load(program)
        for test, expected in zip(tests.inputs, tests.outputs, strict=True):
            if time.monotonic() > deadline:
                yield CaseResult(False, f"all tests together took over {config.total_seconds:g} s")
                continue
            try:
                yield _run_case(tests, test, expected, sandbox, bare=bare)
            except SandboxBroken as broken:
                yield CaseResult(False, f"input {_short(test)}: {broken}")
                deadline = 0.0


def _run_case(
    tests: StdinTests | CallTests, test: Any, expected: Expected, sandbox: Sandbox, *, bare: bool
) -> CaseResult:
    config, changed = sandbox.config, None
    if isinstance(tests, StdinTests):
        outcome = sandbox.run(test.encode())
        output: Any = outcome.output.decode(errors="replace")
    else:
        outcome = sandbox.call(tests.function, values.dumps(test).encode())
        output, changed = _returned(outcome)
    if failure := _failure(outcome, config):
        return CaseResult(False, f"input {_short(test)}: {failure}")
    if tests.checker:
        right = _check(tests.checker, [test, output, expected.values[0]], config, bare=bare)
    elif isinstance(tests, StdinTests):
        right = same_text(expected, output, config.float_tolerance)
    else:
        right = same_value(expected, output, config.float_tolerance) or (
            changed is not None and same_value(expected, changed, config.float_tolerance)
        )
    if right:
        return CaseResult(True)
    return CaseResult(
        False, f"input {_short(test)}: expected {_short(expected.values[0])}, got {_short(output)}"
    )


def _returned(outcome: Outcome) -> tuple[Any, Any]:
    """Return what a call returned and, where that is None, its first argument, changed in place."""
    try:
        value, changed = values.loads(outcome.output)
        return value, changed if value is None else None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return values.Opaque("nothing was returned"), None


def _failure(outcome: Outcome, config: CodeConfig) -> str:
    if outcome.status is None:
        return f"over {config.wall_seconds:g} s"
    if outcome.over:
        return f"over {config.output_bytes} bytes of output"
    if outcome.status == 0:
        return ""
    killed = outcome.status & 0x7F
    if killed:
        return {signal.SIGXCPU: "out of CPU time", signal.SIGXFSZ: "file too large"}.get(
            signal.Signals(killed), f"ended by {signal.Signals(killed).name}"
        )
    last = outcome.error.strip().splitlines()
    return f"exit status {outcome.status >> 8}" + (f", {last[-1][:120]}" if last else "")


def _check(checker: str, arguments: list[Any], config: CodeConfig, *, bare: bool) -> bool:
    """Return the verdict of the problem's own checker."""
    with checker_sandbox(config, bare=bare) as sandbox:
        sandbox.load(checker)
        outcome = sandbox.call("check", values.dumps(arguments).encode())
    if outcome.status != 0:
        raise CheckerFailed(f"the row's checker failed: {_failure(outcome, config)}")
    return _returned(outcome)[0] is True


class CheckerFailed(RuntimeError):
    """The checker that came with the problem gave no verdict."""


_idle_checkers: dict[tuple[CodeConfig, bool], Sandbox] = {}


@contextmanager
def checker_sandbox(config: CodeConfig, *, bare: bool) -> Iterator[Sandbox]:
    """Give a sandbox for code that comes with the dataset: checkers and tests.

    It sees a program's results as data and never runs the program, so it is reused for the next response,
    unless there was an error.
    """
    sandbox = _idle_checkers.pop((config, bare), None) or Sandbox(config, bare=bare)
    try:
        yield sandbox
    except BaseException:
        sandbox.close()
        raise
    _idle_checkers[config, bare] = sandbox


def _run_test_code(
    tests: CodeTests, program: str, inside: Sandbox, deadline: float, *, bare: bool
) -> CaseResult:
    """Run test code in one sandbox against the program in another; only plain data passes between them."""
    try:
        inside.load(f"{tests.prefix}\n\n{program}" if tests.prefix else program)
        inside.serve({"role": "program"})
        hello, _ = _wait(inside, deadline)
        if "names" not in hello:
            return CaseResult(False, f"the program does not load: {_last_line(hello)}")
        with checker_sandbox(inside.config, bare=bare) as outside:
            outside.load(tests.source)
            names = [str(name) for name in hello["names"]][:2000]
            about = {"known": names, "entry": tests.entry, "prefix": tests.prefix}
            outside.serve({"role": "tests", "tests": about})
            return _relay(tests, inside, outside, deadline)
    except SandboxBroken as broken:
        return CaseResult(False, str(broken))


def _relay(tests: CodeTests, inside: Sandbox, outside: Sandbox, deadline: float) -> CaseResult:
    last = ""
    while True:
        header, body = _wait(outside, deadline)
        if "call" not in header:
            _wait(outside, deadline)  # the report on the tests' process
            return (
                CaseResult(True)
                if header.get("done") is True
                else CaseResult(False, _failed(tests, header, last))
            )
        inside.send({"call": header["call"]}, body)
        answer, result = _wait(inside, deadline)
        if not {"returned", "raised"} & answer.keys():
            raise SandboxBroken(f"the program ended: {_last_line(answer)}")
        last = str(answer.get("raised", "")) or _first_of(result)
        kept: dict[str, Any] = {key: answer[key] for key in ("returned", "raised") if key in answer}
        outside.send(kept, result)


def _wait(sandbox: Sandbox, deadline: float) -> tuple[dict[str, Any], bytes]:
    return sandbox.receive(min(sandbox.config.wall_seconds, max(deadline - time.monotonic(), 0.01)))


def _failed(tests: CodeTests, header: dict[str, Any], last: str) -> str:
    rows, line = tests.source.split("\n"), header.get("line")
    row = rows[line - 1].strip() if isinstance(line, int) and 0 < line <= len(rows) else ""
    why = f"{header.get('failed', 'the tests ended')} {header.get('why', '')}".strip()
    return f"{_short(row)}: {_short(why)}; last returned {_short(last)}"


def _first_of(result: bytes) -> str:
    try:
        return _short(values.loads(result)[0])
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return "something that is not data"


def _last_line(header: dict[str, Any]) -> str:
    text = str(header.get("error", "")).strip().splitlines()
    return text[-1][:120] if text else "it exits early"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(values.encode(value))
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."
