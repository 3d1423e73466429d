"""Prometheus metrics of a run: measuring in the driver, serving from every process, finding the processes."""
