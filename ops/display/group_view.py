"""One group as text: prompt, responses, scores, versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from buffer.records.rollout import Rollout
from ops.display.console import stdout

Decoder = Callable[[list[int]], str]
"""Token ids to text."""


def describe(rollout: Rollout, text: Decoder) -> dict[str, Any]:
    """Return one rollout as JSON-able values."""
    return {
        "reward": rollout.reward,
        "verdict": rollout.verdict,
        "detail": rollout.detail,
        "tokens": len(rollout.tokens),
        "finish": rollout.finish,
        "versions": [f"{span.version} from token {span.start}" for span in rollout.spans],
        "mean_logprob": round(float(rollout.logprobs.mean()), 4),
        "text": text(rollout.tokens.tolist()),
    }


def decoder(model: Path) -> Decoder:
    """Return a decoder with the model's tokenizer; without a tokenizer, one that prints the ids."""
    if (model / "tokenizer.json").exists():
        from tokenizers import Tokenizer  # transformers takes seconds to import

        fast = Tokenizer.from_file(str(model / "tokenizer.json"))
        return lambda tokens: str(fast.decode(tokens, skip_special_tokens=False))
    if model.is_dir():
        from transformers import AutoTokenizer

        with suppress(OSError, ValueError):
            tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
            return lambda tokens: str(tokenizer.decode(tokens))
    return lambda tokens: " ".join(map(str, tokens))


def print_group(data: Mapping[str, Any]) -> None:
    """Print what ``magicrl buffer show`` gathered."""
    console = stdout()
    header = ", ".join(
        f"{key} {data[key]}" for key in ("place", "stage", "source", "generator") if data.get(key)
    )
    console.print(f"group {data['group']}: {header}")
    console.print(data.get("prompt", "no body is stored"), style="bold", markup=False)
    for number, rollout in enumerate(data.get("rollouts", ())):
        facts = f"reward {rollout['reward']:g} ({rollout['verdict']}), {rollout['tokens']} tokens"
        facts += (
            f", {rollout['finish']}, {'; '.join(rollout['versions'])}, log-prob {rollout['mean_logprob']}"
        )
        console.rule(f"{number}: {facts}", align="left")
        console.print(rollout["text"], markup=False)
