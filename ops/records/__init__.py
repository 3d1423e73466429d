"""A run's files: its folder and lock, step log, evaluations, summary and kept rollouts.

Imports ``config`` and the rooms below. A reader starts at ``folder.RunFolder``, which names every file.
"""
