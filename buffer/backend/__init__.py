"""Redis: connecting to a server or starting one, calling the functions in it, its users by role.

Start at ``functions`` (how a function is called and its errors become ``errors``), then lua/core.lua. The Lua
files are one library, loaded in the order of ``functions.PARTS``. May import config, retry and records.
"""
