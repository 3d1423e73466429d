"""The values of expression trees, and equality of expressions.

Imports ``notation`` only. Start with ``equality.equal``; ``evaluate.py`` computes one value at one sample
point, under limits on steps and on the size of numbers.
"""
