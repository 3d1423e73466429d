"""What runs in a rank's process, with torch and DeepSpeed.

Start at ``rank``: it fetches bodies, ``collate`` makes tensors of them, ``engine`` runs the ``model``, whose
head is ``logprobs``, and ``publish`` writes the weights. ``attention`` serves packed rows, ``reference`` the
KL term; ``resolve`` decides the settings that are ``auto``; ``oom`` explains failed allocations.
Imports the recipe and the checkpoint formats. The coordinator must not import it.
"""
