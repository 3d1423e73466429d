"""Everything that a resume needs, on disk, and what it is converted to.

    Checkpointer.save -> Checkpoints.new: ranks write engine/, the coordinator state.json; then manifest.json,
                         a flush to the disk and one rename: it is whole or not there
    train --resume  -> Checkpoints.at, .newest, Checkpoint.verify; ``reshard`` for another number of ranks
    magicrl export  -> ``export``: a Hugging Face folder, by ``hf_files``, which publishing uses too

A checkpoint is deleted when ``keep_last`` newer ones exist, unless its step is a multiple of ``keep_every``;
its manifest goes first. ``lineages`` records the lineage numbers in use beside them. The manifest is that of
``buffer.weights.manifest``. Start at ``checkpoint``. May import the learner's config, recipe and memory.
"""
