"""The top room: runs the other four, shows what they do, and is what a person types at.

May import every other room. A reader starts at ``cli`` (the commands) or at ``run/run.py`` (one life of a
run). Sub-packages, each importing only from those after it: commands, bench and doctor, quickstart, run,
evaluation, display, telemetry, records, config.
"""
