"""The worker processes that graders run in.

    GraderPool --- control socket ---> fork server --- fork ---> worker <--- its own socket ---> GraderPool

May import everything else in this room. Start with ``pool.py``; ``registry.py`` maps abilities to graders.
"""
