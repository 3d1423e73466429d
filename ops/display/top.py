"""``magicrl top``: one run on one screen. Pure: snapshots in, rich renderables out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ops.display.progress import bars
from ops.display.snapshot import Samples, Snapshot
from ops.records.summary import total_seconds

WIDE = 110
"""Columns from which panels are drawn side by side."""
STATE_COLOURS = {"running": "green", "finished": "blue", "failed": "red"}
MIB = 2**20
GENERATORS = 16
"""Generators shown of a large fleet: those that lag most."""
HEADER = ("event", "level", "timestamp", "logger", "run", "role", "version")
"""Fields of a log line that are not repeated after its event."""


def screen(now: Snapshot, before: Samples | None, width: int) -> RenderableType:
    """Draw the whole screen. ``before``: the samples of the previous look, for rates."""
    left = [_learner(now, before), _learning(now)]
    right = [_buffer(now), _generators(now, before)]
    if width >= WIDE:
        body = Table.grid(expand=True, padding=(0, 1))
        body.add_column(ratio=1)
        body.add_column(ratio=1)
        body.add_row(Group(*left), Group(*right))
        return Group(_title(now), body, _warnings(now))
    return Group(_title(now), *left, *right, _warnings(now))


def _title(now: Snapshot) -> Text:
    run, last = now.status, now.steps[-1] if now.steps else {}
    parts = [
        f"[bold]{escape(run.name)}[/]",
        f"[{STATE_COLOURS.get(run.state, 'yellow')}]{run.state}[/]",
        f"step [bold]{run.steps}[/]/{run.of or '?'}",
        f"lineage {last.get('lineage', '-')}",
        f"stage {last.get('stage', '-')}",
        time.strftime("%H:%M:%S"),
    ]
    if run.state == "running" and now.samples is None:
        parts.append("[yellow]its metrics do not answer yet[/]")
    return Text.from_markup("   ".join(parts))


def _learner(now: Snapshot, before: Samples | None) -> Panel:
    last, samples = now.steps[-1] if now.steps else {}, now.samples
    seconds = [total_seconds(step) for step in now.steps]
    share = last.get("seconds", {}).get("wait", 0.0) / seconds[-1] if seconds and seconds[-1] else 0.0
    waits = f"{share:.0%} of the last step"
    phase, since = "-", None
    if samples is not None:
        phases = samples.by("magicrl_learner_phase", "phase").items()
        phase = max(phases, key=_second, default=("-", 0))[0]
        since = samples.total("magicrl_learner_last_step_timestamp_seconds")
        current = samples.rate(before, "magicrl_learner_wait_seconds_total")
        waits += "" if current is None else f", {current:.0%} of this moment"
    rows = [
        ("now", f"{phase}, {time.time() - since:.0f} s since the last step" if since else phase),
        ("step", f"{_last(seconds)} s  {spark(seconds)}"),
        ("waits", f"{waits}; {_phases(last)}"),
        ("trained", f"{_per_second(now.steps)} tokens/s"),
    ]
    return _panel("learner", rows)


def _learning(now: Snapshot) -> Panel:
    steps = now.steps
    last = steps[-1] if steps else {}
    target = now.samples.total("magicrl_reference", name="entropy_target") if now.samples else None
    aim = "" if target is None else f", target {target:g}"
    rows = [
        ("reward", f"{_value(last, 'reward_mean')}  {spark(_column(steps, 'reward_mean'))}"),
        ("pass rates", f"0 {bars(last.get('pass_rates', ()))} 1   {_kinds(last)}"),
        ("entropy", f"{_value(last, 'entropy')}{aim}  {spark(_column(steps, 'entropy'))}"),
        ("alpha", f"{_value(last, 'alpha', 5)}   gradient {_value(last, 'grad_norm')}"),
        ("clipped", f"{last.get('clip_low', 0):.1%} below, {last.get('clip_high', 0):.1%} above"),
        ("length", f"{_value(last, 'length_mean', 0)} tokens, {last.get('truncated', 0):.0%} cut"),
    ]
    return _panel("learning", rows)


def _buffer(now: Snapshot) -> Panel:
    samples, last = now.samples, now.steps[-1] if now.steps else {}
    ages = f"{last.get('staleness_mean', 0):.1f} mean, {last.get('staleness_max', 0)} at most"
    if samples is None:
        return _panel("buffer", [("staleness", ages)])
    depth = samples.by("magicrl_buffer_depth", "state")
    dropped = {k: v for k, v in samples.by("magicrl_buffer_dropped_total", "reason").items() if v}
    groups = samples.by("magicrl_buffer_groups", "place")
    batch, bound = (
        samples.total("magicrl_reference", name=name) for name in ("batch_groups", "max_staleness")
    )
    used, limit = (samples.total(f"magicrl_redis_memory_{name}_bytes") or 0 for name in ("used", "max"))
    rows = [
        (
            "ready",
            f"{depth.get('ready', 0):.0f} of {batch or 0:.0f}, {depth.get('pending', 0):.0f} with generators",
        ),
        ("ended", f"{groups.get('trained', 0):.0f} trained, {groups.get('rejected', 0):.0f} flat"),
        ("dropped", ", ".join(f"{v:.0f} {k}" for k, v in dropped.items()) or "none"),
        ("staleness", f"{ages}, bound {bound or 0:.0f}"),
        ("redis", f"{used / MIB:.1f} MiB{f' of {limit / MIB:.0f}' if limit else ''}"),
    ]
    return _panel("buffer", rows)


def _generators(now: Snapshot, before: Samples | None) -> Panel:
    table = Table(box=None, pad_edge=False, expand=True)
    for heading in ("slot", "version", "lag", "tokens/s", "in flight", "idle"):
        table.add_column(heading, justify="left" if heading == "idle" else "right", no_wrap=True)
    samples = now.samples
    if samples is None or not (slots := list(samples.by("magicrl_gen_weights_version", "actor"))):
        body: RenderableType = Text("no generator answers", style="dim")
        return Panel(body, title=f"generators: {_states(samples)}", title_align="left")
    lag = samples.by("magicrl_gen_weights_lag", "actor")
    shown = sorted(slots, key=lambda slot: (-lag.get(slot, 0.0), int(slot)))[:GENERATORS]
    for slot in sorted(shown, key=int):
        table.add_row(*_generator(slot, samples, before))
    most = f"; the {GENERATORS} that lag most" if len(slots) > GENERATORS else ""
    return Panel(table, title=f"generators: {_states(samples)}{most}", title_align="left")


def _states(samples: Samples | None) -> str:
    states = samples.by("magicrl_gen_actors", "state") if samples else {}
    return ", ".join(f"{count:.0f} {state}" for state, count in states.items() if count) or "none seen"


def _generator(slot: str, samples: Samples, before: Samples | None) -> Iterator[str]:
    yield slot
    yield f"{samples.total('magicrl_gen_weights_version', actor=slot) or 0:.0f}"
    lag = samples.total("magicrl_gen_weights_lag", actor=slot) or 0
    yield f"[red]{lag:.0f}[/]" if lag > 2 else f"{lag:.0f}"
    rate = samples.rate(before, "magicrl_gen_tokens_total", actor=slot)
    yield "-" if rate is None else f"{rate:.0f}"
    yield f"{samples.total('magicrl_gen_inflight', actor=slot) or 0:.0f}"
    causes = samples.by("magicrl_gen_idle_seconds_total", "cause", actor=slot)
    rates = {
        cause: samples.rate(before, "magicrl_gen_idle_seconds_total", actor=slot, cause=cause) or 0.0
        for cause in causes
    }
    cause, idle = max(rates.items(), key=_second, default=("", 0.0))
    yield f"{idle:.0%} {cause}" if idle >= 0.005 else "0%"


def _warnings(now: Snapshot) -> Panel:
    lines = [
        f"[{'red' if alert.get('alertstate') == 'firing' else 'yellow'}]{alert.get('alertstate')}[/] "
        f"{escape(alert.get('alertname', ''))} ({escape(alert.get('severity', ''))})"
        for alert in now.alerts
    ]
    lines += [_event(event) for event in now.events]
    return Panel(
        Text.from_markup("\n".join(lines) or "[dim]none[/]"), title="alerts and warnings", title_align="left"
    )


def _event(event: Mapping[str, Any]) -> str:
    extra = {k: v for k, v in event.items() if k not in HEADER}
    text = " ".join([str(event.get("event")), *(f"{key}={value}" for key, value in extra.items())])
    colour = "yellow" if event["level"] == "warning" else "red"
    return f"[{colour}]{str(event.get('timestamp', ''))[11:19]}[/] {escape(text)}"


def spark(values: Sequence[float], width: int = 30) -> str:
    """Draw the newest values, one character each, scaled from the lowest to the highest."""
    shown = list(values)[-width:]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    span = high - low or 1.0
    return "".join("▁▂▃▄▅▆▇█"[round(7 * (value - low) / span)] for value in shown)


def _panel(title: str, rows: Sequence[tuple[str, str]]) -> Panel:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(style="dim", width=10)
    table.add_column(overflow="fold", ratio=1)
    for name, text in rows:
        table.add_row(name, text)
    return Panel(table, title=title, title_align="left")


def _second(pair: tuple[str, float]) -> float:
    return pair[1]


def _column(steps: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(step.get(name) or 0.0) for step in steps]


def _value(step: Mapping[str, Any], name: str, digits: int = 3) -> str:
    value = step.get(name)
    return "-" if value is None else f"{value:.{digits}f}"


def _last(values: Sequence[float]) -> str:
    return f"{values[-1]:.2f}" if values else "-"


def _kinds(step: Mapping[str, Any]) -> str:
    return ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in step.get("outcomes", {}).items())


def _phases(step: Mapping[str, Any]) -> str:
    order = sorted(step.get("seconds", {}).items(), key=_second, reverse=True)
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in order[:3])


def _per_second(steps: Sequence[Mapping[str, Any]]) -> str:
    some = steps[-10:]
    seconds = sum(total_seconds(step) for step in some)
    return f"{sum(step['tokens'] for step in some) / seconds:.0f}" if seconds else "-"
