"""``magicrl doctor``: whether this machine, and what a configuration names, is fit for a run.

Imports ``run`` and below. A reader starts at ``examine``, which lists the checks.
"""
