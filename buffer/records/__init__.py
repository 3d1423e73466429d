"""What travels from generators to the learner: versions, rollouts, groups, summaries, and their wire format.

Start at ``versions`` (policy versions and lineages), then ``rollout``. ``codec`` trusts no byte it reads.
Imports nothing else of the buffer.
"""
