"""``magicrl bench``: what each part does per second and per byte, against a limit or a peer in the same run.

May import every other room, and of ops all but commands. A module with a function ``run`` is one benchmark,
which returns its figures by name; the other modules help it. A reader starts at ``buffer``.
"""
