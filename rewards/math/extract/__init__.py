"""Which part of a response is its final answer: the last box, or a clear statement.

Imports ``notation`` for its braces only. Start with ``final_answer.final_answer``.
"""
