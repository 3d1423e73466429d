"""The places of a group, and the one table of what moves a group between them.

Three groups of a run with a batch of one and a staleness bound of one:

    event                     a          b          c          why
    lease a, c                in flight             in flight
    push a, reject c          pending               rejected   all of c's answers were right: no gradient
    claim step 0, lease b     claimed    in flight  rejected
    commit step 0             trained    in flight  rejected   version 1 is published
    lose b, lease b           trained    in flight  rejected   b's generator died; another loaded version 1
    push b, claim step 1      trained    claimed    rejected
    begin_lineage at step 0   pending    dropped    rejected   the learner died and restored step 0: a is
                                                               trained again, b's weights are undone

A group is in exactly one place from its first lease on, so the ``Books`` balance. Redis moves the groups
(backend/lua); a test compares each row of the table, and each row that it lacks, with a real Redis.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal


class Place(StrEnum):
    """Where a group is. The last three are its ends, though a restart may undo ``TRAINED``."""

    IN_FLIGHT = "in_flight"
    """A generator samples it, or its lease was lost and it waits for another one."""
    PENDING = "pending"
    """Its body is in Redis; the learner may claim it."""
    CLAIMED = "claimed"
    """It is in the batch that the learner trains."""
    TRAINED = "trained"
    """Its step is committed."""
    REJECTED = "rejected"
    """It gives no gradient; its body was never sent."""
    DROPPED = "dropped"
    """It was given up, for a ``DropReason``."""


Event = Literal[
    "lease",
    "lose",
    "push",
    "reject",
    "drop",
    "claim",
    "drop_stragglers",
    "unclaim",
    "commit",
    "begin_lineage",
    "end",
]
"""The functions in Redis that move groups."""

TRANSITIONS: Mapping[Place | None, Mapping[Event, tuple[Place, ...]]] = {
    None: {
        "lease": (Place.IN_FLIGHT,),
        "commit": (Place.TRAINED,),  # Redis forgot the group, the learner did not
    },
    Place.IN_FLIGHT: {
        "lease": (Place.IN_FLIGHT,),  # once its first lease was lost
        "lose": (Place.IN_FLIGHT,),
        "push": (Place.PENDING, Place.DROPPED),  # dropped: stale, or sampled by weights that were undone
        "reject": (Place.REJECTED,),
        "drop": (Place.DROPPED,),
        "drop_stragglers": (Place.DROPPED,),
        "commit": (Place.TRAINED,),  # Redis forgot its push and its claim
        "begin_lineage": (Place.IN_FLIGHT, Place.DROPPED),
        "end": (Place.DROPPED,),
    },
    Place.PENDING: {
        "claim": (Place.CLAIMED,),
        "commit": (Place.TRAINED,),  # Redis forgot its claim
        "begin_lineage": (Place.PENDING, Place.DROPPED),
        "end": (Place.DROPPED,),
    },
    Place.CLAIMED: {
        "commit": (Place.TRAINED,),
        "unclaim": (Place.PENDING, Place.DROPPED, Place.TRAINED),  # trained: Redis had forgotten that
        "begin_lineage": (Place.PENDING, Place.DROPPED, Place.TRAINED),  # trained: in the checkpoint
    },
    Place.TRAINED: {
        "begin_lineage": (Place.TRAINED, Place.PENDING, Place.DROPPED),  # pending: to be trained again
    },
    Place.REJECTED: {},
    Place.DROPPED: {},
}
"""By place and event, where the group may be afterwards. An event that is not listed moves no group."""

UNCLAIMED = (Place.IN_FLIGHT, Place.PENDING)
"""The places that admission counts."""

OPEN = (*UNCLAIMED, Place.CLAIMED)
"""The places of groups that have not ended."""
