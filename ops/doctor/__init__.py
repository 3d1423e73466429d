"""``magicrl doctor``: is this machine, and what a configuration names, fit for a run?"""
