"""What a response is worth: graders, the workers they run in, and reward shaping.

    pool       GraderPool: what other rooms call; forks, feeds and kills the workers; picks graders by ability
    math       MathReward: finds the final answer of a response and compares it with the reference
    code       CodeReward: runs the program of a response against the row's tests, in a sandbox
    graders    a model as grader, shaping terms, and traits of a response for the metrics

It is the lowest room: it imports no other, and no accelerator stack at module level. Start with
``reward.py`` (Problem, Score, Reward), then ``pool/pool.py``.
"""
