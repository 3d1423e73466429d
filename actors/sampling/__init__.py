"""From a dataset row to graded responses: prompts, groups, and benchmarks (avg@k, pass@k).

Imports engines and `rewards`, and knows nothing of leases or versions to train. A reader starts at
group_sampler.py.
"""
