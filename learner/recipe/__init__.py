"""The mathematics of a step, pure.

Start at ``magic`` for the loss. ``advantage`` and ``entropy`` give its A and alpha; ``plan`` cuts a batch
into micro-batches by ``packing``; ``schedule`` gives each step its settings; ``stats`` adds up measurements.
Imports the learner's config and the buffer's records. Only ``magic`` imports torch.
"""
