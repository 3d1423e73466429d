"""Commands that start something: a run, a generator, a measurement, a check of data or machine.

A module for each command, named after it; ``train`` has ``quickstart`` too. The work itself is in the other
sub-packages. A reader starts at ``train``.
"""
