"""Workload: the leased groups that a generator has under way, each in a task of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from actors.sampling.group_sampler import Effort
from buffer.backend.errors import Lost
from buffer.prompts.pool import Lease
from buffer.records.rollout import GroupId


@dataclass(eq=False)
class Work:
    """One leased group under way. lost: another generator has it now."""

    lease: Lease
    effort: Effort = field(default_factory=Effort)
    task: asyncio.Task[None] | None = None
    lost: bool = False


class Workload:
    """Begins groups and counts how they end. Not thread-safe, but for ``progress`` and ``len``."""

    def __init__(
        self,
        run: Callable[[Lease, Effort], Awaitable[str]],
        on_end: Callable[[], None],
        on_run_lost: Callable[[Lost], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """run: brings a group to its end; its outcome. on_end: a group has left, whichever way.
        on_run_lost, on_failure: what ``run`` raised."""
        self._run = run
        self._on_end = on_end
        self._on_run_lost = on_run_lost
        self._on_failure = on_failure
        self._work: dict[GroupId, Work] = {}
        self.outcomes: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._work)

    @property
    def load(self) -> float:
        """Groups in the engine; one whose stragglers alone are left counts only with their share."""
        return sum(1 - work.effort.finished / work.lease.samples for work in self._work.values())

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """All that is under way."""
        return [work.task for work in self._work.values() if work.task is not None]

    def progress(self) -> dict[GroupId, int]:
        """A number per group that grows while it is worked on."""
        return {group: work.effort.steps for group, work in list(self._work.items())}

    def begin(self, lease: Lease) -> None:
        """Work on a group from now on, on the running loop."""
        # A group of ours whose lease was lost may come back before we heard of the loss.
        self.lose([lease.group])
        work = self._work[lease.group] = Work(lease)
        work.task = asyncio.get_running_loop().create_task(self._bring_to_end(work))

    def lose(self, groups: Sequence[GroupId]) -> None:
        """Abort groups whose lease is gone."""
        for work in (self._work[group] for group in groups if group in self._work):
            work.lost = True
            if work.task is not None:
                work.task.cancel()

    def lose_all(self) -> None:
        """Abort everything: no lease holds any more."""
        self.lose(list(self._work))

    async def _bring_to_end(self, work: Work) -> None:
        """Accepted, rejected, dropped, lost with its lease, given back, or failed."""
        try:
            self.outcomes[await self._run(work.lease, work.effort)] += 1
        except asyncio.CancelledError:
            self.outcomes["lost" if work.lost else "given back"] += 1
            raise
        except Lost as error:
            self.outcomes["lost"] += 1
            self._on_run_lost(error)
        except Exception as error:  # noqa: BLE001 - ends the generator
            self.outcomes["failed"] += 1
            self._on_failure(error)
        finally:
            if self._work.get(work.lease.group) is work:
                del self._work[work.lease.group]
            self._on_end()
