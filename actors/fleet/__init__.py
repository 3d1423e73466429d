"""The generators of a run as the driver sees them: started, healed, scaled, asked for evaluations.

Who watches whom, with the settings of `actors` and the constants that are the deadlines:

    fleet watches a start    ray_seconds + engine.start_seconds from creation (handle.py), then killed
    fleet watches a life     stuck_seconds without a beat, or without progress of its work (healing.py)
    fleet watches a slot     doubling pauses, given up after max_failures in a row (healing.py)
    fleet watches a job      its time budget plus REPORT_GRACE_SECONDS (evaluation_job.py)
    supervisor process       an external generator's exit; frees its leases and its slot (external.py)
    generator itself         RECHECK_SECONDS between two checks, LOST_RUN_SECONDS for a run that Redis lost

All times are measured on the watcher's monotonic clock; clocks of different machines are never compared.
Imports every other sub-package of actors. A reader starts at fleet.py.
"""
