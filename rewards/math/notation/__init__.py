"""LaTeX and plain-text mathematics: one spelling for one thing, and expressions as trees.

Imports nothing else of the package. Start with ``notation.normalize``, then ``parser.parse``, whose grammar
is spread over ``scanner``, ``commands`` and ``applications``; ``trees.py`` walks the result.
"""
