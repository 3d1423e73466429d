"""One configuration per run: the rooms' settings composed, read from YAML, checked and explained.

Imports the rooms' ``config`` modules and nothing else of ops. A reader starts at ``schema.Config``;
``loader`` reads files and overrides, ``derived`` computes what the other rooms are started with, and
``recipes/`` has the shipped configurations.
"""
