"""Commands that look at runs, live or ended, and steer live ones: stop, scale, purge.

A module for each subject: ``runs`` has ``stop`` too, ``fleet`` has ``scale``. They find a run and its Redis
by ``records.runs`` and ``records.run_redis``. A reader starts at ``top``.
"""
