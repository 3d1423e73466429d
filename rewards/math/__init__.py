"""Mathematical answers: finding the final one in a response, reading it, and comparing it with a
reference."""
