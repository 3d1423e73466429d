"""Who learns from rollouts: the MAGIC update on DeepSpeed ranks, its stages and its checkpoints."""
