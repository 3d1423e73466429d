"""What a person sees in the terminal: progress of a run, ``magicrl top``, single groups.

Imports ``records`` and ``config``. A reader starts at ``progress``; ``snapshot`` gathers what ``top`` draws.
"""
