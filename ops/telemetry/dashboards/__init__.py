"""Grafana dashboards as code: written with a small panel builder, kept as JSON in ``json/``."""
