"""``magicrl quickstart``: a tiny model and its problems, made on this machine so that nothing is downloaded.

Imports torch only where a model is trained. A reader starts at ``model.build_model``. It is part of the
installed package, not an example beside it, because the command works after a plain install.
"""
