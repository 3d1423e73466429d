"""Prometheus metrics of a run: measured in the driver, served by each process, found by service discovery.

    learner step -> run_metrics -> learner_metrics (Prometheus client's registry)
    Redis, fleet -> live        -> the same registry, between steps
    each process -> server (http) -> announced in Redis (targets) -> driver's /targets -> Prometheus

A reader starts at ``run_metrics``. The generators' own metrics are defined in ``actors.generator.metrics``.
"""
