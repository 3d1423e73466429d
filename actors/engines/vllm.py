"""VllmEngine: vLLM's AsyncLLM in this process; new weights are loaded while requests are in flight."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from actors.aio import within
from actors.config import VllmConfig
from actors.engines.base import (
    EngineBroken,
    EngineStats,
    OnTokens,
    Sample,
    SamplingLimits,
    WeightsRefused,
    as_they_finish,
)
from actors.engines.expected_tensors import expected_tensors
from actors.engines.vllm_start import set_environment, start_llm
from actors.engines.vllm_stats import VllmStatLogger
from buffer.records.rollout import Finish, VersionSpan
from buffer.records.versions import PolicyVersion

log = structlog.get_logger()

READY_POLL_SECONDS = 0.01
"""Interval of asking the worker whether new weights are ready; the call costs less than a decode step."""

SHUTDOWN_SECONDS = 1.0
"""Time that vLLM gives its processes before it kills them; they need no graceful shutdown."""

SHUTDOWN_GRACE_SECONDS = 10.0
"""Further time for the shutdown itself: vLLM's monitor may be shutting it down concurrently."""


class VllmEngine:
    """An Engine (actors/engines/base.py). One request per response: each is returned when it finishes.

    Responses are read in deltas of ``progress_tokens`` and decoded to text once, at their end: per-token
    text costs a third of the throughput of a small model.
    """

    def __init__(
        self,
        llm: Any,
        config: VllmConfig,
        version: PolicyVersion,
        stats: VllmStatLogger | None = None,
    ) -> None:
        self._llm = llm
        self._stats = stats
        self._config = config
        self._version = version
        self._names = itertools.count()
        self._serving = asyncio.Event()
        self._serving.set()
        self._loading = asyncio.Lock()
        self._running = 0
        self._tokens = 0

    @classmethod
    async def start(
        cls, model: Path, config: VllmConfig, version: PolicyVersion, seed: int = 0
    ) -> VllmEngine:
        """Load ``model`` as ``version``. seed: of the sampler; give each engine a different one.

        Raises EngineBroken with vLLM's error text if the folder does not load.
        """
        set_environment(config)
        try:
            llm, stats = await asyncio.to_thread(start_llm, model, config, seed)
        except (RuntimeError, ValueError, OSError, TimeoutError) as error:
            raise EngineBroken(f"vLLM could not start on {model}: {error}") from error
        engine = cls(llm, config, version, stats)
        expected = await asyncio.to_thread(expected_tensors, model)
        await llm.collective_rpc("init_weight_updates", args=(expected, config.prepare_weights))
        await llm.update_weight_version(str(version))
        return engine

    @property
    def version(self) -> PolicyVersion:
        return self._version

    def sample(
        self,
        prompt_ids: Sequence[int],
        n: int,
        limits: SamplingLimits,
        on_tokens: OnTokens | None = None,
    ) -> AsyncGenerator[Sample, None]:
        """As Engine.sample."""
        prompt = [int(token) for token in prompt_ids]
        return as_they_finish(self._respond(prompt, index, limits, on_tokens) for index in range(n))

    async def _respond(
        self, prompt: list[int], index: int, limits: SamplingLimits, on_tokens: OnTokens | None
    ) -> Sample:
        async with asyncio.timeout(limits.deadline):
            while True:
                await self._serving.wait()
                sample = await self._request(prompt, index, limits, on_tokens)
                if sample is not None:
                    return sample

    async def _request(
        self, prompt: list[int], index: int, limits: SamplingLimits, on_tokens: OnTokens | None
    ) -> Sample | None:
        """Sample one response; None if new weights aborted it (``on_new_weights: restart``)."""
        # The salt keeps the prefix cache apart by version: no request starts on keys of older weights.
        inputs = {"prompt_token_ids": prompt, "cache_salt": str(self._version)}
        parameters = self._parameters(limits, index)
        tokens: list[int] = []
        logprobs: list[float] = []
        text: list[str] = []
        async for part in self._outputs(inputs, parameters):
            tokens += part.token_ids
            logprobs += part.logprobs.logprobs
            text.append(part.text)
            self._tokens += len(part.token_ids)
            if on_tokens is not None:
                on_tokens(len(part.token_ids))
        if part.finish_reason == "abort":
            return None
        return Sample(
            index=index,
            text="".join(text) if limits.stop else self.decode(tokens),
            tokens=np.asarray(tokens, dtype=np.int32),
            logprobs=np.asarray(logprobs, dtype=np.float32),
            spans=_spans(part.weight_versions),
            finish=_finish(part.finish_reason),
        )

    async def _outputs(self, inputs: dict[str, Any], parameters: Any) -> AsyncIterator[Any]:
        """Yield the parts of one response, with vLLM's errors translated to those of Engine."""
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError

        self._running += 1
        try:
            async with aclosing(self._llm.generate(inputs, parameters, f"{next(self._names)}")) as outputs:
                async for output in outputs:
                    yield output.outputs[0]
        except VLLMClientError as error:
            raise ValueError(str(error)) from error
        except EngineDeadError as error:
            raise EngineBroken(f"vLLM's engine process died: {error}") from error
        finally:
            self._running -= 1

    def _parameters(self, limits: SamplingLimits, index: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            max_tokens=limits.max_tokens,
            temperature=limits.temperature,
            top_p=limits.top_p,
            top_k=limits.top_k,
            stop=list(limits.stop) or None,
            include_stop_str_in_output=True,
            seed=None if limits.seed is None else limits.seed + index,
            logprobs=0,
            flat_logprobs=True,
            detokenize=bool(limits.stop),
            output_kind=RequestOutputKind.DELTA,
            stream_interval=self._config.progress_tokens,
        )

    def decode(self, tokens: Sequence[int]) -> str:
        """As Engine.decode."""
        text: str = self._llm.get_tokenizer().decode(list(tokens), skip_special_tokens=True)
        return text

    async def load(self, version: PolicyVersion, weights: Path) -> float:
        """As Engine.load: prepare while sampling continues, then pause, switch and resume."""
        async with self._loading:
            try:
                async with asyncio.timeout(self._config.load_seconds):
                    await self._prepare(weights)
            except Exception as error:
                self._raise_if_dead(error)
                raise WeightsRefused(f"weights {version} from {weights}: {error}") from error
            self._serving.clear()
            begun = time.monotonic()
            try:
                async with asyncio.timeout(self._config.load_seconds):
                    await self._switch(version)
            except Exception as error:
                raise EngineBroken(f"switching to weights {version} failed half way: {error}") from error
            finally:
                self._serving.set()
            return time.monotonic() - begun

    async def _prepare(self, weights: Path) -> None:
        """Do everything that is possible while sampling continues."""
        await self._llm.collective_rpc("prepare_weight_update", args=(str(weights),))
        while not all(await self._llm.collective_rpc("weight_update_ready")):
            await asyncio.sleep(READY_POLL_SECONDS)

    async def _switch(self, version: PolicyVersion) -> None:
        # The engine core's own calls: AsyncLLM.pause_generation adds a sleep of 20 ms to every pause.
        mode = "keep" if self._config.on_new_weights == "continue" else "abort"
        await self._llm.engine_core.pause_scheduler_async(mode=mode, clear_cache=False)
        await self._llm.collective_rpc("apply_weight_update")
        await self._llm.update_weight_version(str(version))
        self._version = version
        await self._llm.resume_generation()

    def _raise_if_dead(self, error: Exception) -> None:
        if self._llm.errored:
            raise EngineBroken(f"vLLM's engine process died: {error}") from error

    def check(self) -> None:
        if self._llm is not None and self._llm.errored:
            raise EngineBroken("vLLM's engine process died")

    def stats(self) -> EngineStats:
        running = min(self._running, self._config.max_num_seqs)
        waiting = self._running - running
        if self._stats is None:
            return EngineStats(running, waiting, self._tokens, kv_cache_ratio=0.0)
        return EngineStats(running, waiting, self._tokens, self._stats.cache_ratio, self._stats.preemptions)

    async def close(self) -> None:
        if (handler := self._llm.output_handler) is not None:
            handler.cancel()  # otherwise it reports the normal exit as a crash
        closing = asyncio.create_task(asyncio.to_thread(self._llm.shutdown, SHUTDOWN_SECONDS))
        await within(SHUTDOWN_SECONDS + SHUTDOWN_GRACE_SECONDS, "vLLM to shut down", closing)
        self._llm.shutdown = lambda: None  # vLLM calls it again at interpreter exit, and logs an error
        self._llm = None


def _spans(spans: Sequence[Any]) -> tuple[VersionSpan, ...]:
    return tuple(VersionSpan(PolicyVersion.parse(span.version), span.start, span.end) for span in spans)


def _finish(reason: str) -> Finish:
    if reason not in ("stop", "length"):
        raise EngineBroken(f"vLLM ended a response with {reason!r}; expected 'stop' or 'length'")
    return "stop" if reason == "stop" else "length"
