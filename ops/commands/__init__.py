"""The commands of ``magicrl``, a module each: options in, one call, text out.

``jobs`` start something, ``observe`` looks at a run. A command imports what it runs when it runs, so that
``magicrl --help`` loads no torch, vllm or ray. A reader starts at ``ops/cli.py``, which lists them.
"""
