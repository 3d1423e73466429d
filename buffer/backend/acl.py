"""Redis users by role: what a generator, a learner and an observer may do, and what that cannot prevent.

The driver of a run connects as its learner. Each role has its side of the buffer in ``buffer.store``.
"""

from __future__ import annotations

from typing import Literal, get_args

from buffer.backend.functions import LIBRARY, READERS, namespace
from buffer.backend.pubsub import CHANNELS

Role = Literal["generator", "learner", "observer"]
ROLES: tuple[Role, ...] = get_args(Role)

_CONNECTION = (
    *("ping", "hello", "auth", "select", "info", "time", "client|setname"),
    *("multi", "exec", "discard"),
)
_LISTEN = ("subscribe", "unsubscribe", "publish")
_READ = (
    *("get", "exists", "hget", "hmget", "hgetall", "hkeys", "hscan", "sscan", "zscan", "scard", "sismember"),
    *("mget", "smembers", "zcard", "zcount", "zrange", "zrangebyscore", "zscore", "llen", "lrange"),
)
_WRITE = (
    *("set", "mset", "unlink", "del", "hset", "hsetnx", "hdel", "hincrby", "sadd", "srem", "spop", "smove"),
    *("rename", "zadd", "zrem", "zremrangebyscore", "zpopmin", "rpush", "expire"),
)
_FUNCTIONS: dict[Role, tuple[str, ...]] = {
    "generator": ("lease", "push", "reject", "drop", "heartbeat", "lose"),
    "learner": (
        *("open", "fill", "enter_stage", "place", "begin_lineage"),
        *("restore", "restore_epoch", "restore_histories"),
        *("claim", "unclaim", "commit", "drop_stragglers", "announce", "checkpoint_begun"),
        *("checkpoint_durable", "learner_beat", "lose", "pause", "stop", "end"),
    ),
    "observer": (),
}

LIMITS = """\
What these users cannot prevent: a function runs with its caller's rights, so a generator may also send the
commands that its functions use, on the keys of its own run: it can spoil that run's buffer, though not
another run, not the server (no CONFIG, no FLUSHALL, no EVAL, no FUNCTION) and not what is checkpointed. What
it pushes is trained on: only bodies are checked, not honesty. Traffic is not encrypted unless the address
is rediss://."""


def acl_rules(run: str, role: Role, password: str = "<PASSWORD>") -> str:
    """Return the ACL SETUSER command for one role of one run."""
    allowed = [*_CONNECTION, *_LISTEN, *_READ]
    if role == "learner":
        allowed.append("function|load")
    if role != "observer":
        allowed += _WRITE
        allowed += [f"fcall|{LIBRARY}_{name}" for name in _FUNCTIONS[role]]
    allowed += [f"fcall_ro|{LIBRARY}_{name}" for name in READERS]
    keys = f"{'%R' if role == 'observer' else ''}~{namespace(run)}*"
    user = [
        "ACL SETUSER",
        f"magicrl-{role}",
        "reset",
        "on",
        f">{password}",
        keys,
        f"&{namespace(run)}:{CHANNELS}:*",
    ]
    return " ".join([*user, "-@all", *(f"+{command}" for command in allowed)])
