"""The sandbox: one isolated interpreter per response.

    sandbox     (host) starts the interpreter, exchanges frames with it, ends whatever it started
    container   (host) the command line: an unused user, bubblewrap, a system-call filter
    cgroup      (host) limits over all processes together
    probe       (host) tries to escape before any program may
    fork_server (inside) forks one child per test; with serving, nodes and values

What runs inside imports the standard library and its own four modules only: ``sandbox.INSIDE`` sends their
text in. Start with ``sandbox.py``.
"""
