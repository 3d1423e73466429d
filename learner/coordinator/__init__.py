"""The learner's loop, in the driver's process: no weights, no torch.

Start at ``loop``. ``claims`` waits for a batch and plans it; ``rank_group`` drives the ranks through Ray;
``checkpointer`` saves and restores, with ``state`` and ``resume``; ``nonfinite`` handles skipped steps;
``report`` describes a step; ``hooks`` is what the run adds. Imports checkpoint and recipe. It must not import
``compute``, which the ranks import in their own processes.
"""
