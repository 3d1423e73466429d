"""Whether two answers agree, kind by kind.

Imports ``answers``, ``values`` and ``notation``. Start with ``compare.matches``; ``math_verify.py`` is the
fallback for references that no reader covers.
"""
