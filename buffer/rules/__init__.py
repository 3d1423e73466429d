"""Decisions of the buffer, pure: no clock, no socket, no thread. They take events and return decisions.

    admission       how many groups may start, whether a step may be claimed
    places          where a group is, and what moves it
    books           how many groups are in each place, and why some were dropped
    selection       which groups are worth training on
    difficulty      which prompts are drawn, and how often each is sampled
    lease_monitor   which leases are lost
    stragglers      which groups a waiting learner drops

Start at ``admission``. May import records and config.
"""
