"""Settings of the buffer: its Redis, the staleness bound, which prompts are drawn, how weights are passed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, model_validator

from rewards.settings import Settings

TruncationMask = Literal["none", "before", "after"]
"""``before``: truncated responses are left out of the group's statistics. ``after``: they are included, with
advantage 0."""


class RedisConfig(Settings):
    """Address of the buffer's Redis, and how it is reached."""

    url: str | None = None
    """redis://host:port/0, rediss:// for TLS, or unix:///path. Unset: the run starts its own server."""
    username: str | None = None
    """ACL user (see `magicrl buffer acl`). Unset: the default user."""
    password: SecretStr | None = None
    """Password. Prefer password_file: it keeps the secret out of the config."""
    password_file: Path | None = None
    """File whose first line is the password."""
    ca_file: Path | None = None
    """Certificate authority for rediss://."""
    allow_open: bool = False
    """Accept a Redis beyond loopback that asks for no password. Anyone who reaches it can read and change
    the run."""
    patience_seconds: float = Field(default=60.0, gt=0)
    """Seconds that a call is retried while Redis cannot be reached, before it fails."""
    timeout_seconds: float = Field(default=20.0, gt=0)
    """Seconds that one reply may take before the connection counts as broken."""
    fsync: Literal["always", "everysec"] = "everysec"
    """Durability of a server that the run starts. always loses nothing when Redis is killed, and writes about
    half as fast; everysec may lose the last two seconds, which are sampled again and counted."""

    @model_validator(mode="after")
    def _one_password(self) -> RedisConfig:
        if self.password is not None and self.password_file is not None:
            raise ValueError("password and password_file are both set; set one")
        return self


class WeightServerConfig(Settings):
    """The driver's HTTP server of weights, for generators that do not see ``root``."""

    host: str = "127.0.0.1"
    """Interface to listen on; 0.0.0.0: all of them."""
    port: int = Field(default=0, ge=0, le=65535)
    """Port to listen on; 0: a free one, which the run prints."""
    token_file: Path | None = None
    """File whose first line is the token that clients must send; required beyond loopback. Clients without
    this file read the token from MAGICRL_WEIGHTS_TOKEN."""


class WeightsConfig(Settings):
    """How new weights get from the learner to the generators, and how many versions are kept."""

    transport: Literal["disk", "http", "ray"] = "disk"
    """disk: generators read ``root``. http: they download from the driver, which sees ``root``. ray: through
    Ray's object store, for a cluster without a shared file system."""
    root: Path | None = None
    """Folder of the published weights; the learner must see it, and with ``disk`` every generator. Unset: in
    shared memory, for one machine."""
    keep: int = Field(default=3, ge=2)
    """Newest versions kept, besides those pinned by a loader."""
    full_every: int = Field(default=1, ge=1)
    """1: every version is published in full. n: of n versions, n - 1 are published as lossless differences to
    the one before: a fraction of the size, at the cost of some computing at both ends and a full copy in each
    process's memory."""
    http: WeightServerConfig | None = None
    """Serve the weights for generators outside the cluster too. null: only where ``transport`` is http."""


class DifficultyConfig(Settings):
    """Which prompts are worth sampling, by their pass rates."""

    initial_low: float = Field(default=0.0, ge=0, le=1)
    """Prompts whose initial pass rate is at or below this are not drawn (recipe: keep 0 < p < 1)."""
    initial_high: float = Field(default=1.0, ge=0, le=1)
    """Prompts whose initial pass rate is at or above this are not drawn."""
    retire_at: float | None = Field(default=1.0, gt=0, le=1)
    """Pass rate of a group at or above which its prompt is mastered and not drawn again (recipe: 1.0). null:
    never."""
    rest_after: int | None = Field(default=2, ge=1)
    """Consecutive groups without one right answer before a prompt rests. null: never."""
    rest_longest: int = Field(default=8, ge=1)
    """Longest rest in epochs; each further failure doubles the rest up to this."""
    memory: float = Field(default=0.9, gt=0, le=1)
    """Weight that a pass rate's posterior keeps per policy step; below 1, recent policies count more."""
    budget_low: float = Field(default=1.0, gt=0, le=1)
    """Lower bound of an easy prompt's samples, as a share of the group size. 1 with budget_high 1: all groups
    have the same size."""
    budget_high: float = Field(default=1.0, ge=1)
    """Upper bound of a promising hard prompt's samples, as a multiple of the group size."""

    @model_validator(mode="after")
    def _range(self) -> DifficultyConfig:
        if self.initial_low >= self.initial_high:
            raise ValueError(f"initial_low {self.initial_low} must be below initial_high {self.initial_high}")
        return self


class BufferConfig(Settings):
    """The replay buffer between generators and learner."""

    redis: RedisConfig = RedisConfig()
    max_staleness: int = Field(default=1, ge=0, le=32)
    """Steps by which a group's oldest token may be older than the step that trains it. 0: on-policy."""
    lease_seconds: float = Field(default=120.0, gt=0)
    """Seconds without progress after which a generator loses its groups; they are sampled again elsewhere.
    Must be longer than the slowest grader and the slowest load of weights."""
    straggler_seconds: float = Field(default=1800.0, gt=0)
    """Seconds until a group that keeps the learner from its batch is dropped as a straggler, and counted with
    its length: seconds without a token or verdict of its own (before its first token, of any such group), or
    seconds for which it alone kept a batch waiting that is full without it, even if it moves. Must be longer
    than lease_seconds and shorter than learner.claim_timeout."""
    push_seconds: float = Field(default=600.0, gt=0)
    """Seconds that a finished group waits for memory in Redis before the push fails."""
    memory_limit_bytes: int | None = Field(default=None, gt=0)
    """Memory limit in bytes of a server that the run starts; an error if the batches in flight may need more.
    Unset: none."""
    max_body_bytes: int = Field(default=256 * 2**20, gt=0)
    """Largest group in bytes, before compression, that is written or read."""
    max_rejected_per_step: float = Field(default=10.0, gt=0)
    """Flat groups in one step, in batches, before the run ends as "data exhausted"."""
    selection: str = "nonflat"
    """Which groups are worth training on: nonflat, all, top_variance, or an importable module:function."""
    difficulty: DifficultyConfig = DifficultyConfig()
    mixture: dict[str, float] = Field(default_factory=dict)
    """Draws per prompt and epoch, by data source; a source that is not named has weight 1."""
    weights: WeightsConfig = WeightsConfig()
