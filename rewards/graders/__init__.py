"""Judgements beyond exact ones: a model as grader, shaping terms, and traits of a response.

Imports ``math`` to find answers. Start with ``model_judge.py`` for rewards, ``traits.py`` for metrics.
"""
