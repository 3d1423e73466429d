"""RolloutBuffer: what generators push and the learner claims. Every multi-key step is one function in
Redis."""

from __future__ import annotations

from buffer.backend.functions import BufferFull, BufferRefusal, Fenced, Lost, Unreachable, WrongStep
from buffer.rules.books import Books, DropReason
from buffer.store.generator_side import Pushing, PushResult
from buffer.store.learner_side import Claim, ClaimedGroup, Claiming, CorruptGroup, Short
from buffer.store.recovery import Recovery

__all__ = [
    "Books",
    "BufferFull",
    "BufferRefusal",
    "Claim",
    "ClaimedGroup",
    "CorruptGroup",
    "DropReason",
    "Fenced",
    "Lost",
    "PushResult",
    "RolloutBuffer",
    "Short",
    "Unreachable",
    "WrongStep",
]


class RolloutBuffer(Pushing, Claiming, Recovery):
    """The buffer of one run, for generators and learner alike. Synchronous; every method is thread-safe.

    Calls go on while Redis cannot be reached (``redis.patience_seconds``) and may safely be repeated. They
    raise Lost where Redis lost the run, Fenced where a newer lineage took over, Unreachable where patience
    ended.
    """
