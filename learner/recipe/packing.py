"""Cut token-budget micro-batches and balance them over ranks. Pure: lengths in, rows of indices out."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

Row = tuple[int, ...]
"""Indices of the sequences that share one row."""

MicroBatch = tuple[Row, ...]


def balance(costs: Sequence[float], bins: int) -> list[list[int]]:
    """Spread items over bins so that the largest sum is small: largest first, each into the emptiest bin.

    At most 4/3 of the optimum (Graham 1969). Deterministic: ties go to the lower index.
    """
    heap = [(0.0, index) for index in range(bins)]
    result: list[list[int]] = [[] for _ in range(bins)]
    for item in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        load, index = heapq.heappop(heap)
        result[index].append(item)
        heapq.heappush(heap, (load + costs[item], index))
    return result


def padded_micro_batches(lengths: Sequence[int], budget: int) -> list[MicroBatch]:
    """Put one sequence in a row and rows of similar length together, with rows x longest <= budget.

    A sequence longer than the budget gets a micro-batch of its own.
    """
    batches: list[list[Row]] = []
    longest = 0
    for item in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if not batches or (len(batches[-1]) + 1) * longest > budget:
            batches.append([])
            longest = lengths[item]
        batches[-1].append((item,))
    return [tuple(batch) for batch in batches]


def packed_micro_batches(lengths: Sequence[int], budget: int, row: int) -> list[MicroBatch]:
    """Put several sequences in a row of at most ``row`` tokens, similar rows together, within the budget."""
    rows = pack_rows(lengths, row)
    totals = [sum(lengths[i] for i in members) for members in rows]
    return [
        tuple(rows[index] for (index,) in batch) for batch in padded_micro_batches(totals, max(budget, row))
    ]


def pack_rows(lengths: Sequence[int], row: int) -> list[Row]:
    """Pack by first-fit decreasing; a sequence longer than ``row`` gets a row of its own."""
    rows: list[list[int]] = []
    room: list[int] = []
    for item in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        place = next((index for index, free in enumerate(room) if free >= lengths[item]), None)
        if place is None:
            rows.append([])
            room.append(max(row, lengths[item]))
            place = len(rows) - 1
        rows[place].append(item)
        room[place] -= lengths[item]
    return [tuple(members) for members in rows]
