"""How generators sample, how many there are, and what each of them may use."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from rewards.settings import Settings


class VllmConfig(Settings):
    """One vLLM engine. What is not named here goes into ``engine_args``."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Weights and activations of the sampler; auto: as the model folder says. float32 samples within 1e-6
    nats of a float32 learner, bfloat16 within about 2e-3 (mean, measured on the quickstart model)."""

    max_model_len: int | None = Field(default=None, gt=1)
    """Longest prompt plus response in tokens; None: as many positions as the model has."""

    max_num_seqs: int = Field(default=64, gt=0)
    """Responses decoded at once; more of them wait inside the engine."""

    kv_cache_gib: float | None = Field(default=None, gt=0)
    """Size of the key/value cache in GiB; None: on a GPU what memory_ratio leaves beside the weights, on a
    CPU a quarter of the memory that is free, at most 4."""

    memory_ratio: float = Field(default=0.9, gt=0, le=1)
    """Share of a GPU's memory for weights and cache where kv_cache_gib is not given."""

    enforce_eager: bool = False
    """No compilation: starts faster, decodes slower except for very small models."""

    tensor_parallel_size: int = Field(default=1, gt=0)
    """GPUs that share one engine."""

    omp_threads: int | None = Field(default=None, gt=0)
    """CPU threads of an engine without GPU; None: one per CPU that Ray grants the generator."""

    prefix_caching: bool = True
    """Keep the prompt's keys and values for the other responses of its group."""

    on_new_weights: Literal["continue", "restart"] = "continue"
    """What happens to unfinished responses when weights arrive: they go on under the new ones (spans say
    which version sampled which token), or start again from the prompt."""

    prepare_weights: bool = True
    """Keep a second set of weights in memory so that switching to new ones hardly pauses sampling; on the CPU
    without compilation, elsewhere it has no effect."""

    start_seconds: float = Field(default=600.0, gt=0)
    """Deadline for loading the model and warming up."""

    load_seconds: float = Field(default=300.0, gt=0)
    """Deadline for switching to new weights; passed, the generator ends with an error."""

    progress_tokens: int = Field(default=128, gt=0)
    """Tokens between two signs of life of one response; smaller costs throughput."""

    engine_metrics: bool = True
    """Let vLLM keep its own statistics (`vllm:` series, cache use, queueing); costs a little per token."""

    engine_args: dict[str, Any] = Field(default_factory=dict)
    """Passed to vllm.AsyncEngineArgs as they are; they win over the fields above."""


class ThinkingConfig(Settings):
    """Optional budget of the thought, for models that think between two marks (Qwen3)."""

    budget: int | None = Field(default=None, gt=0)
    """Tokens of thought after which it is closed and the answer sampled on; None: no budget."""

    end: str = "</think>"
    """The model's own mark for the end of a thought; must be one token of its tokenizer."""

    close: str = "\n\nI have to give the answer now.\n</think>\n\n"
    """Inserted when the budget is spent, must contain ``end``; carries no gradient."""


class HealingConfig(Settings):
    """What happens to generators that die or stand still."""

    first_pause_seconds: float = Field(default=1.0, gt=0)
    """Pause before the first replacement; doubles with every failure in a row."""

    longest_pause_seconds: float = Field(default=60.0, gt=0)
    """The pause grows no longer than this."""

    healthy_seconds: float = Field(default=300.0, gt=0)
    """A generator that served this long has proved itself: its earlier failures are forgotten."""

    max_failures: int = Field(default=5, ge=1)
    """Failures in a row after which a slot is given up and says why; `magicrl scale` tries it anew."""

    stuck_seconds: float = Field(default=180.0, gt=0)
    """A generator whose heartbeat, or whose work, stands still this long is killed and replaced."""


class AutoscaleConfig(Settings):
    """Optional: the number of generators follows who waits for whom (the law: actors/fleet/autoscale.py)."""

    least: int = Field(default=1, ge=0)
    """Never fewer generators than this."""

    most: int = Field(default=8, ge=1)
    """Never more generators than this."""

    window_seconds: float = Field(default=120.0, gt=0)
    """Length of one observation."""

    up_at: float = Field(default=0.2, gt=0, le=1)
    """One more generator when the learner waited for data for this share of a window."""

    down_at: float = Field(default=0.3, gt=0, le=1)
    """One fewer when admission held the generators back for this share of a window."""

    patience: int = Field(default=2, ge=1)
    """Windows in a row that must agree before anything changes."""

    @model_validator(mode="after")
    def _bounds(self) -> AutoscaleConfig:
        if self.least > self.most:
            raise ValueError(f"least {self.least} must not be above most {self.most}")
        return self


class ActorsConfig(Settings):
    """The generators of one run."""

    generators: int = Field(default=1, ge=0)
    """How many to start with; `magicrl scale` changes it on a live run."""

    groups_in_flight: int = Field(default=16, gt=0)
    """Groups' worth of responses that one generator samples at once: a group of 16 of which one straggler is
    left counts as 1/16. More than fit the engine (max_num_seqs) only wait there."""

    num_cpus: float = Field(default=1.0, ge=0)
    """CPUs that Ray reserves for one generator."""

    num_gpus: float = Field(default=0.0, ge=0)
    """GPUs that Ray reserves for one generator; tensor_parallel_size of them where there are GPUs."""

    resources: dict[str, float] = Field(default_factory=dict)
    """Further Ray resources of one generator, to keep generators on nodes of their own."""

    ray_seconds: float = Field(default=600.0, gt=0)
    """How long a generator may wait for Ray to find its resources, before its start counts as failed."""

    stop: tuple[str, ...] = ()
    """Texts that end a response besides the end-of-sequence token."""

    response_seconds: float | None = Field(default=None, gt=0)
    """Deadline for one response; passed, its group is dropped as a straggler and counted. None: none."""

    thinking: ThinkingConfig = ThinkingConfig()

    heartbeat_seconds: float = Field(default=5.0, gt=0)
    """Time between two heartbeats; keep it well below the buffer's lease."""

    drain_seconds: float = Field(default=60.0, ge=0)
    """On a stop, how long responses in flight may still finish before their groups are given back."""

    healing: HealingConfig = HealingConfig()

    autoscale: AutoscaleConfig | None = None
    """None: as many generators as `generators` or `magicrl scale` say."""

    max_failures: int = Field(default=8, gt=0)
    """Groups that may fail one after the other before the generator gives up with the last error."""

    engine: VllmConfig = VllmConfig()
