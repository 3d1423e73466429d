"""promtool, the judge of alert rules, and series in its notation: one value a minute for twelve hours."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from ops.telemetry.alerts import RULES

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus"
)
Series = dict[str, str]
"""Values by the selector of a series."""


def metric(name: str, values: str, /, **labels: str) -> Series:
    """Return a series of run ``r``."""
    inside = ",".join(f'{key}="{value}"' for key, value in {"run": "r", **labels}.items())
    return {f"magicrl_{name}{{{inside}}}": values}


def flat(value: float) -> str:
    """Return values that do not change."""
    return f"{value}+0x720"


def steady(rate: float) -> str:
    """Return a counter that grows by ``rate`` a minute."""
    return f"0+{rate}x720"


@dataclass(frozen=True)
class Case:
    """Whether ``alert`` fires at ``minute``. run: the label that its alert has."""

    alert: str
    fires: bool
    series: Series
    minute: int
    run: str | None = "r"


def cases(alert: str, firing: Series, *silent: Series, minute: int = 60) -> Iterator[Case]:
    """Yield a case in which the alert fires, and those in which it stays silent."""
    yield Case(alert, True, firing, minute)
    for series in silent:
        yield Case(alert, False, series, minute)


def check(case: Case, folder: Path) -> None:
    """Assert with promtool that the alert fires exactly if it should."""
    labels = {"alertname": case.alert, "alertstate": "firing"} | ({"run": case.run} if case.run else {})
    selector = ",".join(f'{key}="{value}"' for key, value in labels.items())
    expression = {
        "expr": f"sum(ALERTS{{{selector}}})",
        "eval_time": f"{case.minute}m",
        "exp_samples": [{"labels": "{}", "value": 1}] if case.fires else [],
    }
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "promql_expr_test": [expression],
    }
    path = folder / "case.yml"
    interval = "1m" if case.minute <= 120 else "5m"
    document = {"rule_files": [str(RULES)], "evaluation_interval": interval, "tests": [test]}
    path.write_text(yaml.safe_dump(document))
    run_promtool("test", "rules", str(path))


def run_promtool(*arguments: str) -> None:
    """Assert that promtool succeeds."""
    command = ["promtool", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
