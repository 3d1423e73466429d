"""One generator: a loop that leases, samples and pushes groups, and loads weights as they are announced.

Imports sampling, engines and weights, and the generator's side of `buffer`. A reader starts at generator.py;
one group's steps are GroupRunner.run in group_run.py.
"""
