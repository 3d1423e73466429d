"""One run's configuration: the settings of the rooms, composed. Each field is explained where it is defined.

``loader`` reads it from YAML; ``magicrl config show`` prints it with every explanation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from actors.config import ActorsConfig
from buffer.config import BufferConfig
from learner.config import LearnerConfig
from learner.recipe.schedule import Schedule, StageConfig
from ops.config.trackers import TrackersConfig
from rewards.config import RewardsConfig
from rewards.settings import Settings


class ConfigError(Exception):
    """A configuration that cannot be used; the message names the field and the fix."""


class RunConfig(Settings):
    """Name, folder and length of the run."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
    """Names the run's folder and its keys in Redis: letters, digits, '-' and '_'."""

    folder: Path = Path("runs")
    """Parent folder; the run lives in <folder>/<name>. On a cluster: a file system that all nodes share."""

    steps: int = Field(gt=0)
    """Learner steps to train for."""

    seed: int = 0
    """Seed of the order of prompts and of the sampler."""

    @property
    def path(self) -> Path:
        """The run's own folder, absolute."""
        return (self.folder / self.name).absolute()


class ModelConfig(Settings):
    """The model to train."""

    path: Path
    """A Hugging Face causal language model: a folder with config, weights and tokenizer, or an id of the Hub
    like Qwen/Qwen3-0.6B, which is downloaded into the cache of huggingface_hub."""

    revision: str | None = None
    """Branch, tag or commit of a model of the Hub; None: its main branch."""

    chat_template: Path | None = None
    """File with a chat template (Jinja); None: the tokenizer's own. A model that has neither, as base models
    have none, gets the messages joined by blank lines."""

    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the chat template, like {enable_thinking: false}."""


class DataConfig(Settings):
    """Problems to train on and, optionally, to measure accuracy on."""

    train: tuple[Path, ...] = Field(min_length=1)
    """Files, folders of them or `hf:owner/name/config:split`, in any form of docs/data.md; a file listed
    twice counts double."""

    test: Path | None = None
    """File of problems for the accuracy before and after training; None: not measured."""

    test_samples: int = Field(default=512, gt=0)
    """Responses sampled for each of the two, at least, spread evenly over the test problems."""

    question: str | None = None
    """Column with the question in plain files; None: the usual names are tried."""

    answer: str | None = None
    """Column with the reference answer in plain files; None: the usual names are tried."""

    instruction: str = ""
    """Text appended to each problem that does not contain it."""

    ability: str = "math"
    """Ability, and so the grader, of rows that name none: math or code."""

    difficulty_model: str | None = None
    """Model whose failures in `extra_info.model_difficulty` estimate a prompt's pass rate; None: no
    estimate."""

    allow_skipped: float = Field(default=0.1, ge=0, le=1)
    """Greatest share of a file's rows that may be unusable; with more the run does not start."""

    max_prompt_tokens: int = Field(default=2048, gt=0)
    """Longest prompt in tokens; longer ones are counted and left out (Skywork scripts: 2048)."""

    system_prompt: str | None = None
    """System message of each problem that has none of its own."""


class BenchmarkConfig(Settings):
    """Problems whose accuracy is measured regularly while the run trains."""

    path: Path
    """Parquet or JSON lines, read as ``data.train`` is."""

    samples: int = Field(default=8, gt=0)
    """Responses to each problem: the k of avg@k and pass@k (Skywork scripts: 8)."""

    limit: int | None = Field(default=None, gt=0)
    """Number of problems taken from the start of the file; None: all."""

    max_tokens: int | None = Field(default=None, gt=0)
    """Longest response in tokens; None: the response limit of the last stage."""

    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature (Skywork scripts: 0.6 and 1.0)."""

    top_p: float = Field(default=1.0, gt=0, le=1)
    """Share of the probability mass that is sampled from."""


class EvaluationConfig(Settings):
    """Benchmarks: measured at the start, at the end, and in between, each time on one generator."""

    every: int = Field(default=20, gt=0)
    """Steps between two measurements (Skywork scripts: 20)."""

    benchmarks: dict[str, BenchmarkConfig] = Field(default_factory=dict)
    """Benchmarks by the name they have in logs and metrics, like aime24: {path: data/aime24.parquet}. Besides
    the path: samples (8 for each problem), limit (number of problems), max_tokens (the last stage's response
    limit), temperature (1) and top_p (1)."""

    own_engine: bool = False
    """Evaluate on one more generator that takes no part in training, instead of borrowing one; for runs with
    one or two generators."""

    seconds: float = Field(default=14400.0, gt=0)
    """Longest time for all benchmarks at one version, in seconds."""

    @property
    def needs_engine(self) -> bool:
        """Whether the run starts one more generator."""
        return self.own_engine and bool(self.benchmarks)


class RayConfig(Settings):
    """The Ray cluster that generators and learner ranks run on."""

    address: str | None = None
    """Address of a running cluster ("auto" or host:port); None starts one on this machine for the run."""

    num_cpus: int | None = None
    """CPUs of the cluster started here; None: those of the machine, but at least what the run asks for."""


class MetricsConfig(Settings):
    """Where each process serves its Prometheus metrics."""

    host: str = "127.0.0.1"
    """Interface to listen on; keep it on loopback unless the network is trusted."""

    port: int = Field(default=0, ge=0, le=65535)
    """Port of the driver; 0 takes a free one, as the other processes always do."""

    token_file: Path | None = None
    """File with the bearer token that a scraper must send; needed beyond loopback unless there is TLS."""

    certificate: Path | None = None
    """TLS certificate (PEM), with ``key``."""

    key: Path | None = None
    """TLS private key (PEM)."""


class RolloutsConfig(Settings):
    """Which trained groups are kept on disk for `magicrl rollouts`."""

    per_step: int = Field(default=4, ge=0)
    """Groups kept from each step; 0: none."""
    file_bytes: int = Field(default=64 * 2**20, gt=0)
    """Size in bytes at which a new file is begun."""
    total_bytes: int = Field(default=2**30, gt=0)
    """Size in bytes of all files together, beyond which the oldest are deleted."""


class Config(Settings):
    """Everything a run needs, one section per room."""

    run: RunConfig
    model: ModelConfig
    data: DataConfig
    evaluation: EvaluationConfig = EvaluationConfig()
    stages: tuple[StageConfig, ...] = Field(min_length=1)
    """Stages in order: stretches of training with one context length each."""
    buffer: BufferConfig = BufferConfig()
    rewards: RewardsConfig = RewardsConfig()
    actors: ActorsConfig = ActorsConfig()
    learner: LearnerConfig = LearnerConfig()
    ray: RayConfig = RayConfig()
    metrics: MetricsConfig = MetricsConfig()
    trackers: TrackersConfig = TrackersConfig()
    rollouts: RolloutsConfig = RolloutsConfig()

    @model_validator(mode="after")
    def _stages_fill_the_run(self) -> Config:
        length = self.schedule.length
        if length is not None and length < self.run.steps:
            raise ValueError(f"run.steps: {self.run.steps} steps, but the stages end after {length}")
        return self

    @property
    def schedule(self) -> Schedule:
        """Which settings apply at which step."""
        return Schedule(self.stages, self.learner)
