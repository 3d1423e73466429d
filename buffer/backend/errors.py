"""Errors with which the buffer refuses a call. The message gives the reason, and the fix if there is one."""

from __future__ import annotations


class BufferRefusal(RuntimeError):
    """The buffer refused a call."""


class Lost(BufferRefusal):
    """This Redis does not have the run's state (any more): restore it, or wait until it is restored."""


class Fenced(BufferRefusal):
    """A newer lineage took over; this learner must end."""


class WrongStep(BufferRefusal):
    """Another step is claimed next."""


class Unreachable(BufferRefusal):
    """Redis could not be reached for as long as the config allows."""


class BufferFull(BufferRefusal):
    """Redis stayed at its memory limit for as long as the config allows."""
