"""Commands that start something: train, quickstart, generator, eval, score, export, doctor, bench, config."""
