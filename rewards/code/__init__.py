"""Programs as answers: the tests a row brings, the sandbox they run in, and how outputs are judged."""
