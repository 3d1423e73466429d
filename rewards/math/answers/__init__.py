"""What an answer can be, and how its text is read.

``answers.py`` has the kinds, ``reading.py`` the reader that tries them in order; the other modules each
read one kind. Imports ``notation`` and ``values``. Start with ``answers.py``.
"""
