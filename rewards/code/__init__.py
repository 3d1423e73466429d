"""Programs as answers, graded by the tests of their row.

    program     a response -> its program
    test_cases  a row -> tests: standard input, function calls, or test code
    sandbox     runs programs; knows no expected output
    run_tests   runs the tests one by one and judges each outcome, outside of the sandbox
    outputs     whether an output is one that a test accepts

Start with ``reward.py``, then ``run_tests.py``.
"""
