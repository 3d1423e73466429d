"""RunState: what every role may read of a run, and wait for."""

from __future__ import annotations

from typing import Any, get_args

import redis

from buffer.backend.functions import Functions, flat_map
from buffer.backend.pubsub import CHANNELS, Channel, ChannelListener
from buffer.config import BufferConfig
from buffer.records.codec import decode_summary
from buffer.records.rollout import GroupId
from buffer.records.versions import Lineage, PolicyVersion
from buffer.rules.books import Books, Outcomes, books_from_counts, outcomes_from_counts


class RunState:
    """One run as Redis has it, read-only. Thread-safe.

    Its ``functions`` are what the generator's, the learner's and the driver's side call Redis through.
    """

    def __init__(self, client: redis.Redis, run: str, config: BufferConfig) -> None:
        self.client = client
        self.run = run
        self.config = config
        self.functions = Functions(client, run, config.redis)
        self._listeners: dict[Channel, ChannelListener] = {
            channel: ChannelListener(client, self.functions.key(CHANNELS, channel))
            for channel in get_args(Channel)
        }

    def books(self) -> Books:
        """Return how many groups are in each place."""
        in_flight, pending, claimed, counts = self.functions.call("books")
        return books_from_counts(
            in_flight, pending, claimed, {name: int(number) for name, number in flat_map(counts).items()}
        )

    def live(self) -> list[GroupId]:
        """Return the groups that are started and have not ended."""
        return [GroupId.parse(group.decode()) for group in self.functions.call("live")]

    def lineages(self) -> list[Lineage]:
        """Return all lineages of the run."""
        rows = self._read("hgetall", "lineages")
        split = {int(number): row.decode().split(":") for number, row in rows.items()}
        return [Lineage(number, int(row[0]), int(row[1])) for number, row in sorted(split.items())]

    def snapshot(self) -> dict[str, Any]:
        """Return the books and lineages, JSON-able, for a checkpoint (see ``DriverBuffer.restore``)."""
        return {
            "books": self.books().counts(),
            "lineages": [list(lineage) for lineage in self.lineages()],
        }

    def stopping(self) -> str | None:
        """Return why the run stops, or None."""
        reason = self._read("hget", "control", field="stopping")
        return reason.decode() if reason else None

    def announced(self) -> PolicyVersion | None:
        """Return the newest weights announced by the current lineage, or None."""
        text = self._read("hget", "control", field="announced")
        return PolicyVersion.parse(text.decode()) if text else None

    def oldest_ready(self) -> PolicyVersion | None:
        """Return the oldest version among the pending groups, or None."""
        summary = self.functions.call("oldest_ready")
        return decode_summary(summary).oldest if summary else None

    def outcomes(self, step: int) -> Outcomes:
        """Return the outcomes of groups that finished while ``step`` was claimed next; kept for 64 steps."""
        counts = self._read("hgetall", "outcomes", step)
        return outcomes_from_counts({name.decode(): int(number) for name, number in counts.items()})

    def learner_beats(self) -> int:
        """Return a number that grows as long as a learner lives."""
        return int(self._read("hget", "control", field="learner_beats") or 0)

    def wait(self, seconds: float, channel: Channel = "room") -> bool:
        """Wait for a message since the last wait, at most ``seconds``; look again in either case.

        Generators listen to ``room`` (may start, new weights, stop), the learner to ``work`` (a group
        finished).
        """
        return self._listeners[channel].wait(seconds)

    def close(self) -> None:
        """Give the subscriptions' connections back; the client stays open."""
        for listener in self._listeners.values():
            listener.close()

    def _read(self, command: str, *key: object, field: str | None = None) -> Any:
        read = getattr(self.client, command)
        arguments = [self.functions.key(*key)] + ([field] if field else [])
        return self.functions.retry_while_unreachable(lambda: read(*arguments), str(key[0]))
