"""Settings of the generators: how they sample, how many there are, what each of them may use."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from rewards.settings import Settings


class VllmConfig(Settings):
    """One vLLM engine; further arguments of vLLM go into ``engine_args``."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Weights and activations of the sampler; auto: as in the model folder. float32 samples within 1e-6
    nats of a float32 learner, bfloat16 within about 2e-3 (mean, measured on the quickstart model)."""

    max_model_len: int | None = Field(default=None, gt=1)
    """Longest prompt plus response in tokens; None: as many positions as the model has."""

    max_num_seqs: int = Field(default=64, gt=0)
    """Responses decoded at once; further ones wait in the engine."""

    kv_cache_gib: float | None = Field(default=None, gt=0)
    """Size of the key/value cache in GiB; None: on a GPU what memory_ratio leaves beside the weights, on a
    CPU a quarter of the free memory, at most 4."""

    memory_ratio: float = Field(default=0.9, gt=0, le=1)
    """Share of a GPU's memory for weights and cache where kv_cache_gib is not given."""

    enforce_eager: bool = False
    """Do not compile the model: starts faster, decodes slower except for very small models."""

    tensor_parallel_size: int = Field(default=1, gt=0)
    """GPUs that share one engine."""

    omp_threads: int | None = Field(default=None, gt=0)
    """CPU threads of an engine without GPU; None: one per CPU that Ray grants the generator."""

    prefix_caching: bool = True
    """Keep the prompt's keys and values for the other responses of its group."""

    on_new_weights: Literal["continue", "restart"] = "continue"
    """What happens to unfinished responses when weights arrive: they continue under the new ones (spans
    record which version sampled which token), or restart from the prompt."""

    prepare_weights: bool = True
    """Keep a second set of weights in memory, so that a switch to new ones hardly pauses sampling. Works on
    the CPU without compilation; elsewhere it has no effect."""

    start_seconds: float = Field(default=600.0, gt=0)
    """Deadline for loading the model and warming up, in seconds."""

    load_seconds: float = Field(default=300.0, gt=0)
    """Deadline for a switch to new weights, in seconds; past it the generator ends with an error."""

    progress_tokens: int = Field(default=128, gt=0)
    """Tokens between two progress reports of one response; fewer cost throughput."""

    engine_metrics: bool = True
    """Let vLLM keep its own statistics (`vllm:` series, cache use, queueing); costs a little per token."""

    engine_args: dict[str, Any] = Field(default_factory=dict)
    """Passed to vllm.AsyncEngineArgs unchanged; they override the fields above."""


class ThinkingConfig(Settings):
    """Optional thinking budget, for models that think between two marks (Qwen3)."""

    budget: int | None = Field(default=None, gt=0)
    """Tokens of thought after which it is closed and the answer is sampled; None: no budget."""

    end: str = "</think>"
    """The model's mark for the end of a thought; must be one token of its tokenizer."""

    close: str = "\n\nI have to give the answer now.\n</think>\n\n"
    """Text inserted when the budget is spent; must contain ``end``; carries no gradient."""


class HealingConfig(Settings):
    """When dead or stuck generators are replaced (the law: actors/fleet/healing.py)."""

    first_pause_seconds: float = Field(default=1.0, gt=0)
    """Pause before the first replacement, in seconds; doubles with every failure in a row."""

    longest_pause_seconds: float = Field(default=60.0, gt=0)
    """Longest pause before a replacement, in seconds."""

    healthy_seconds: float = Field(default=300.0, gt=0)
    """Seconds of service after which the earlier failures of a generator's slot are forgotten."""

    max_failures: int = Field(default=5, ge=1)
    """Failures in a row after which a slot is given up with its last error; `magicrl scale` retries it."""

    stuck_seconds: float = Field(default=180.0, gt=0)
    """Seconds without a heartbeat, or without progress of its work, after which a generator is killed and
    replaced."""


class AutoscaleConfig(Settings):
    """Optional: the number of generators follows who waits for whom (the law: actors/fleet/autoscale.py)."""

    least: int = Field(default=1, ge=0)
    """Smallest number of generators."""

    most: int = Field(default=8, ge=1)
    """Largest number of generators."""

    window_seconds: float = Field(default=120.0, gt=0)
    """Length of one observation, in seconds."""

    up_at: float = Field(default=0.2, gt=0, le=1)
    """Share of a window that the learner waited for data, from which a generator is added."""

    down_at: float = Field(default=0.3, gt=0, le=1)
    """Share of a window that admission blocked the generators, from which one is removed."""

    patience: int = Field(default=2, ge=1)
    """Windows in a row that must agree before the number changes."""

    @model_validator(mode="after")
    def _bounds(self) -> AutoscaleConfig:
        if self.least > self.most:
            raise ValueError(f"least {self.least} must not be above most {self.most}")
        return self


class ActorsConfig(Settings):
    """The generators of one run."""

    generators: int = Field(default=1, ge=0)
    """Number of generators at the start; `magicrl scale` changes it on a live run."""

    groups_in_flight: int = Field(default=16, gt=0)
    """Groups' worth of responses that one generator samples at once: a group of 16 of which one straggler is
    left counts as 1/16. More than the engine decodes at once (max_num_seqs) only wait there."""

    num_cpus: float = Field(default=1.0, ge=0)
    """CPUs that Ray reserves for one generator."""

    num_gpus: float = Field(default=0.0, ge=0)
    """GPUs that Ray reserves for one generator; where there are GPUs, as many as tensor_parallel_size."""

    resources: dict[str, float] = Field(default_factory=dict)
    """Further Ray resources of one generator, for example to place generators on nodes of their own."""

    ray_seconds: float = Field(default=600.0, gt=0)
    """Time for Ray to find a generator's resources, in seconds; past it the start counts as failed."""

    stop: tuple[str, ...] = ()
    """Texts that end a response besides the end-of-sequence token."""

    response_seconds: float | None = Field(default=None, gt=0)
    """Deadline for one response, in seconds; past it its group is dropped as a straggler and counted. None:
    no deadline."""

    thinking: ThinkingConfig = ThinkingConfig()

    heartbeat_seconds: float = Field(default=5.0, gt=0)
    """Seconds between two heartbeats; keep it well below buffer.lease_seconds."""

    drain_seconds: float = Field(default=60.0, ge=0)
    """Time for responses in flight to finish at a stop, in seconds; then their groups are given back."""

    healing: HealingConfig = HealingConfig()

    autoscale: AutoscaleConfig | None = None
    """Automatic number of generators; None: the number is `generators`, or what `magicrl scale` sets."""

    max_failures: int = Field(default=8, gt=0)
    """Failed groups in a row after which the generator ends with the last error."""

    engine: VllmConfig = VllmConfig()
