"""A run's files: folder and lock, step log, evaluations, summary, kept rollouts; and the runs on a machine.

Imports ``config`` and the rooms below. A reader starts at ``folder.RunFolder``, which names every file.
"""
