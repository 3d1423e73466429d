"""``magicrl rollouts``: show responses that a run was trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.rule import Rule

from buffer.records.rollout import Rollout, RolloutGroup
from ops.config.schema import ConfigError
from ops.display.console import stderr, stdout
from ops.records.runs import find_run
from rewards.reward import VERDICTS

if TYPE_CHECKING:
    from ops.display.group_view import Decoder

app = typer.Typer()


@dataclass(frozen=True)
class Sample:
    """One response, with its group and the step that trained it."""

    step: int
    group: RolloutGroup
    rollout: Rollout


@app.command()
def rollouts(
    run: Annotated[str, typer.Argument(help="A run's name or folder.")],
    step: Annotated[int | None, typer.Option(help="Only groups trained at this step.")] = None,
    prompt: Annotated[int | None, typer.Option(help="Only this prompt: its row number.")] = None,
    verdict: Annotated[str | None, typer.Option(help=f"Only {', '.join(VERDICTS)}.")] = None,
    longest: Annotated[bool, typer.Option("--longest", help="Longest first instead of newest.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Number of responses shown.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line for each response.")] = False,
) -> None:
    """Show responses that a run was trained on: prompt, answer, score, verdict, versions, length.

    A few groups of each step are kept in the run's folder (`rollouts.per_step`).
    """
    from ops.display.group_view import decoder
    from ops.records.rollout_log import read_groups

    if verdict is not None and verdict not in VERDICTS:
        raise ConfigError(f"--verdict {verdict}: must be one of {', '.join(VERDICTS)}")
    folder = find_run(run)
    found = [
        Sample(at, group, rollout)
        for at, group in read_groups(folder.path / "rollouts", step)
        if prompt is None or group.id.prompt == prompt
        for rollout in group.rollouts
        if verdict is None or rollout.verdict == verdict
    ]
    found.sort(key=lambda sample: len(sample.rollout.tokens) if longest else sample.step, reverse=True)
    show = _print_json if as_json else _print
    text = decoder(folder.model)
    for sample in islice(found, limit):
        show(sample, text)
    if not found:
        stderr().print(f"no such rollouts in {folder.path / 'rollouts'}")
        raise typer.Exit(1)


def sample_facts(sample: Sample) -> dict[str, Any]:
    """Return what is known of a response besides its text, JSON-able."""
    rollout = sample.rollout
    spans = [f"{span.version}:{span.end - span.start}" for span in rollout.spans]
    return {
        "step": sample.step,
        "group": str(sample.group.id),
        "prompt": sample.group.id.prompt,
        "data_source": sample.group.data_source,
        "reward": rollout.reward,
        "verdict": rollout.verdict,
        "detail": rollout.detail,
        "tokens": len(rollout.tokens),
        "finish": rollout.finish,
        "versions": spans,
        "mean_logprob": round(float(rollout.logprobs.mean()), 4),
        "group_rewards": [other.reward for other in sample.group.rollouts],
    }


def text_traits(response: str) -> dict[str, Any]:
    """Return traits of the text: reflection words, repetition, other scripts, format failures."""
    from rewards.graders.traits import traits

    found = traits(response)
    return {
        "reflections": sum(found.reflections.values()),
        "repetition": round(found.repetition, 3),
        "language_mix": round(found.language_mix, 3),
        "format_failures": sorted(found.format_failures),
    }


def _print(sample: Sample, text: Decoder) -> None:
    console = stdout()
    rollout, response = sample.rollout, text(sample.rollout.tokens.tolist()).strip()
    known = sample_facts(sample) | text_traits(response)
    colour = "green" if rollout.verdict == "correct" else "red"
    head = f"step {sample.step}  prompt {known['prompt']}  [{colour}]{rollout.verdict}[/]  {rollout.reward:g}"
    console.print(Rule(head, align="left", style="dim"))
    console.print(f"[dim]{escape(text(sample.group.prompt_tokens.tolist()).strip())}[/]")
    console.print(escape(response))
    console.print(f"[dim]{escape('   '.join(_notes(known)))}[/]\n")


def _notes(known: dict[str, Any]) -> Iterator[str]:
    yield f"{known['tokens']} tokens, ended by {known['finish']}"
    yield f"versions {' '.join(known['versions'])}"
    yield f"log-probability {known['mean_logprob']:.3f} a token"
    yield f"group {' '.join(f'{reward:g}' for reward in known['group_rewards'])}"
    yield f"reflects {known['reflections']} times, repetition {known['repetition']:.2f}"
    if known["detail"]:
        yield str(known["detail"])


def _print_json(sample: Sample, text: Decoder) -> None:
    import json

    response = text(sample.rollout.tokens.tolist())
    texts = {"prompt_text": text(sample.group.prompt_tokens.tolist()), "response": response}
    typer.echo(json.dumps(sample_facts(sample) | text_traits(response) | texts))
