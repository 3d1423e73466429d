"""What ``magicrl data check`` finds out about a file of problems before a run reads it.

    rows ---> probes.probes: responses of known verdict ---> (grader pool) ---> check.FileCheck: what failed

Pure: neither reads files nor grades. Imports the rows of ``buffer`` and the test forms of ``rewards``.
A reader starts at ``check``.
"""
