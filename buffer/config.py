"""Settings of the buffer: the Redis it lives in, how stale a group may be, what is kept and for how long."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, model_validator

from rewards.settings import Settings

TruncationMask = Literal["none", "before", "after"]
"""``before``: truncated responses leave the group's statistics. ``after``: they stay in, their advantage is
0."""


class RedisConfig(Settings):
    """Where the buffer's Redis is and how to reach it."""

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
    """How long a call goes on trying while Redis cannot be reached, before it fails."""
    timeout_seconds: float = Field(default=20.0, gt=0)
    """How long one reply may take before the connection counts as broken."""
    fsync: Literal["always", "everysec"] = "everysec"
    """Durability of a server the run starts itself. always loses nothing when Redis is killed, and writes
    about half as fast; everysec may lose the last two seconds, which are sampled again and booked."""

    @model_validator(mode="after")
    def _one_password(self) -> RedisConfig:
        if self.password is not None and self.password_file is not None:
            raise ValueError("password and password_file are both set; set one")
        return self


class WeightServerConfig(Settings):
    """The driver's HTTP server for generators that do not see the weights."""

    host: str = "127.0.0.1"
    """Interface to listen on; 0.0.0.0: all of them."""
    port: int = Field(default=0, ge=0, le=65535)
    """0 takes a free one; the run says which."""
    token_file: Path | None = None
    """File whose first line is the token that clients must bring; needed beyond loopback. Clients without
    this file get the token in MAGICRL_WEIGHTS_TOKEN."""


class WeightsConfig(Settings):
    """How new weights get from the learner to the generators, and how many versions are kept."""

    transport: Literal["disk", "http", "ray"] = "disk"
    """disk: generators read ``root``. http: they download from the driver, which sees ``root``. ray: through
    Ray's object store, for a cluster without a shared file system."""
    root: Path | None = None
    """Folder of the published weights; the learner must see it, and with ``disk`` every generator. Unset: in
    shared memory, for one machine."""
    keep: int = Field(default=3, ge=2)
    """Versions kept per lineage beside those that are pinned by a loader."""
    full_every: int = Field(default=1, ge=1)
    """1: every version is passed on whole. n: of n versions n - 1 are lossless differences to the one before,
    a fraction of the size, for some computing at both ends and a whole copy in each process's memory."""
    http: WeightServerConfig | None = None
    """Serve the weights for generators outside the cluster too. null: only where ``transport`` is http."""


class DifficultyConfig(Settings):
    """Which prompts are worth sampling, from what is known of their pass rates."""

    initial_low: float = Field(default=0.0, ge=0, le=1)
    """Prompts whose initial pass rate is at or below this are not drawn (recipe: keep 0 < p < 1)."""
    initial_high: float = Field(default=1.0, ge=0, le=1)
    """Prompts whose initial pass rate is at or above this are not drawn."""
    retire_at: float | None = Field(default=1.0, gt=0, le=1)
    """A prompt whose group passed at this rate or more is mastered and drawn no more (recipe: 1.0). null:
    never."""
    rest_after: int | None = Field(default=2, ge=1)
    """Groups without one right answer in a row before a prompt rests. null: never."""
    rest_longest: int = Field(default=8, ge=1)
    """Longest rest in epochs; each further failure doubles the rest up to this."""
    memory: float = Field(default=0.9, gt=0, le=1)
    """Weight that the posterior of a pass rate keeps per policy step; below 1 recent policies count more."""
    budget_low: float = Field(default=1.0, gt=0, le=1)
    """Easy prompts get at least this share of the group size. 1 with budget_high 1: every group the same
    size."""
    budget_high: float = Field(default=1.0, ge=1)
    """Promising hard prompts get at most this multiple of the group size."""

    @model_validator(mode="after")
    def _range(self) -> DifficultyConfig:
        if self.initial_low >= self.initial_high:
            raise ValueError(f"initial_low {self.initial_low} must be below initial_high {self.initial_high}")
        return self


class BufferConfig(Settings):
    """The replay buffer between generators and learner."""

    redis: RedisConfig = RedisConfig()
    max_staleness: int = Field(default=1, ge=0, le=32)
    """Steps that a group's oldest token may be older than the step that trains it. 0: strictly on-policy."""
    lease_seconds: float = Field(default=120.0, gt=0)
    """A generator whose work stands still for this long loses its groups; they are sampled anew elsewhere.
    Longer than the slowest grader and the slowest load of weights."""
    straggler_seconds: float = Field(default=1800.0, gt=0)
    """How long one group may keep the learner from claiming its batch before it is dropped, and counted with
    its length. Longer than the slowest honest response."""
    push_seconds: float = Field(default=600.0, gt=0)
    """How long a finished group waits for memory in Redis before the push fails."""
    memory_limit_bytes: int | None = Field(default=None, gt=0)
    """Memory limit of a server the run starts itself; one that cannot hold the batches in flight is an error.
    Unset: none."""
    max_body_bytes: int = Field(default=256 * 2**20, gt=0)
    """Largest group, before compression, that is written or read."""
    max_rejected_per_step: float = Field(default=10.0, gt=0)
    """Flat groups for one step, in batches, before the run ends as "data exhausted"."""
    selection: str = "nonflat"
    """Which groups are worth training on: nonflat, all, top_variance, or an importable module:function."""
    difficulty: DifficultyConfig = DifficultyConfig()
    mixture: dict[str, float] = Field(default_factory=dict)
    """Draws per prompt and epoch, by data source; a source that is not named has weight 1."""
    weights: WeightsConfig = WeightsConfig()
