"""Mathematical answers, graded.

    extract    a response -> the text of its final answer
    notation   text -> plain LaTeX -> expression trees
    values     expression trees -> numbers; equality by exact arithmetic and at sample points
    answers    text -> kinds of answers: quantities, sets, intervals, equations, dates, words, ...
    compare    two answers -> whether they agree

Each may import from those above it in ``pyproject.toml``'s contract only. Start with ``reward.py``.
"""
