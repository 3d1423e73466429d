"""Prompts: the dataset's rows, and the pool in Redis from which they are leased.

    files ---> dataset.read_dataset ---> Dataset: rows by index, in a temporary file
                                            | heads
                                            v
               stages.StagedPrompts ---> pool.PromptPool.fill ---> Redis: ids and statistics, never rows
                                                 lease <---------- generators, which read the rows themselves

``forms`` is the table of forms that public datasets have; ``record`` reads one row by it. Start at ``pool``;
``snapshot`` is what a checkpoint keeps of it. May import backend, rules and records.
"""
