"""What is measured: the problems of a run, benchmarks while it trains, the target of ``magicrl eval``.

Imports ``config`` and the actors' sampling; starts nothing itself. A reader starts at ``live``.
"""
