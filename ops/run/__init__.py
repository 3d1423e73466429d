"""One life of a run: its session, its parts, their supervision and its end.

Imports everything of ops but commands, bench, doctor and quickstart. A reader starts at ``run``, which reads
top-down; ``supervision.md`` lists who supervises whom, with which deadline and reaction.
"""
