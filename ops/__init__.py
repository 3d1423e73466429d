"""What runs it: command line, configuration, run, cluster, metrics, data and evaluation."""
