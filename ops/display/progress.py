"""A run's progress in the terminal: phases, one line for each step, results."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from buffer.records.versions import PolicyVersion
from ops.display.console import stderr
from ops.records.evaluations import When

if TYPE_CHECKING:
    from actors.sampling.benchmark import Evaluation
    from learner.coordinator.report import StepReport

BARS = " ▁▂▃▄▅▆▇█"
HEADER_EVERY = 20
HEADER = (
    f"{'step':>9} {'reward':>6} {'pass rates':^10} {'entropy':>7} {'alpha':>7} {'stale':>7} "
    f"{'length':>6} {'tok/s':>7} {'learner':>8} {'generators':>10} {'s/step':>6}"
)
SUBHEAD = (
    f"{'':>9} {'':>6} {'0 .. 100 %':^10} {'':>7} {'':>7} {'avg max':>7} "
    f"{'tokens':>6} {'':>7} {'waits':>8} {'idle':>10}"
)


class Progress:
    """Prints lines to standard error, the same in a terminal, over ssh and into a file."""

    def __init__(self, steps: int, console: Console | None = None) -> None:
        self._steps = steps
        self._console = console or stderr()
        self._begun = time.monotonic()
        self._lines = 0
        self._tokens = (0.0, time.monotonic())

    def note(self, text: str) -> None:
        """Print a line after the seconds since the start."""
        self._console.print(f"[dim]{time.monotonic() - self._begun:6.1f} s[/]  {text}")

    def accuracy(self, when: When, result: Evaluation) -> None:
        """Print the accuracy on the test problems."""
        self.note(
            f"accuracy {when} training: [bold]{100 * result.avg:.1f} %[/] "
            f"± {100 * result.standard_error:.1f} ({result.problems} problems, {result.k} responses each)"
        )

    def benchmark(self, name: str, version: PolicyVersion, result: Evaluation) -> None:
        """Print a benchmark's result."""
        passed = result.passed.get(result.k, result.avg)
        self.note(
            f"{name} at step {version.step}: avg@{result.k} [bold]{100 * result.avg:.1f} %[/], "
            f"pass@{result.k} {100 * passed:.1f} %, {result.tokens:.0f} tokens, {result.truncated:.0%} cut"
        )

    def step(self, report: StepReport, totals: Mapping[str, float]) -> None:
        """Print one learner step. ``totals``: of the generators, as ``FleetSupervisor.totals`` has them."""
        if self._lines % HEADER_EVERY == 0:
            self._console.print(f"[bold]{HEADER}[/]\n[dim]{SUBHEAD}[/]")
        self._lines += 1
        total = sum(report.seconds.values())
        wait = report.seconds.get("wait", 0.0) / total if total else 0.0
        self._console.print(
            f"{report.step + 1:>4}/{self._steps:<4} {report.reward_mean:>6.3f} "
            f"{bars(report.pass_rates):^10} {report.entropy:>7.3f} {report.alpha:>7.4f} "
            f"{report.staleness_mean:>4.1f} {report.staleness_max:>2} "
            f"{report.length_mean:>6.0f} {totals.get('tokens_per_second', 0):>7.0f} {wait:>8.0%} "
            f"{totals.get('idle_ratio', 0):>10.0%} {total:>6.2f}"
        )


def bars(counts: Sequence[int]) -> str:
    """Draw a histogram, one character for each bucket: blank for none, a full block for the most."""
    most = max(counts, default=0) or 1
    return "".join(BARS[-(-count * (len(BARS) - 1) // most)] for count in counts)


def final_lines(summary: Mapping[str, Any], folder: Any) -> list[str]:
    """Return the lines that end a run."""
    before, after = summary["accuracy_before"], summary["accuracy_after"]
    lines = []
    if before is not None and after is not None:
        lines.append(f"accuracy {before:.3f} before, {after:.3f} after {summary['steps']} steps")
    lines.append(f"the run's files: {folder}")
    return lines
