"""What the quickstart trains: additions to solve, and a model small enough to learn them on a laptop."""
