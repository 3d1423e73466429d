"""What passes between generators and learner: groups of rollouts through Redis, weights through a store.

The way of one group. Each arrow is one function in Redis, atomic and safe to repeat:

    generator                          Redis                              learner
    ---------                          -----                              -------
    PromptPool.lease ---- lease -----> in flight  (admission: is there room within the staleness bound?)
    sample, grade                          |
    heartbeat ------- heartbeat ---------->|  progress; the driver takes stalled leases back: lose
        |                                  |
        +-- rewards differ: push --------> pending  (body and index in one transaction)
        |                                  |
        |                                  v
        |                              claimed <--------- claim --------- LearnerBuffer.claim (a full batch)
        |                                  |   bodies ------------------> ranks: LearnerBuffer.fetch
        |                                  |                                train, publish weights
        |                                  v
        |   room, new weights <------  trained <--------- commit -------- LearnerBuffer.commit
        |                                  |
        |                                  +-- checkpoint_durable: forgotten, no restore needs it
        |
        +-- all equal: reject ---------> rejected  (no body is sent)
        +-- given up: drop ------------> dropped   (stragglers and stale or undone groups too)

A restart (begin_lineage) makes what the checkpoint lacks pending again, if its body is still there.

Where to start reading about

    admission       rules/admission.py, the inequality; ``room`` in backend/lua/core.lua, its twin in Redis
    places          rules/places.py, a worked example and the table of transitions
    claim, commit   store/learner_side.py; backend/lua/claims.lua
    push, leases    store/generator_side.py, prompts/pool.py; backend/lua/groups.lua, prompts.lua
    recovery        ``restore`` in store/driver_side.py, ``begin_lineage`` in store/learner_side.py;
                    backend/lua/recovery.lua
    weights         weights/__init__.py

Sub-packages, each imports only from those below it:

    store, prompts     the buffer by role, the prompt pool
    backend, weights   Redis, weight stores
    rules              decisions: pure, no clock, no socket
    records            what travels, and its wire format
    config, metrics, retry, log_context and other modules of this folder

May import ``rewards`` (verdicts, problems), never torch, vllm or ray: a buffer can be read in under a second.
"""
