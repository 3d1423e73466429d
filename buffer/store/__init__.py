"""The buffer of one run in Redis, by role: each role has its class and its Redis user (``backend.acl``).

    state       RunState         anyone: read the books, wait, see what is announced
    generator   GeneratorBuffer  push, reject, drop, heartbeat, release
    learner     LearnerBuffer    begin a lineage, claim, fetch, commit, mark checkpoints, announce
    driver      DriverBuffer     open, restore, take back lost leases, pause, stop, end

These are the attributes of a ``RolloutBuffer``; generators get only their side, the learner only its own.
Every step that touches several keys is one function in Redis (backend/lua). ``inspection`` reads groups for
people. Start at ``rollout_buffer``. May import backend, rules and records, not prompts.
"""
