"""Grafana dashboards as code, built with Grafana's own SDK when they are exported or pushed.

A reader starts at ``overview``; ``learning``, ``data_plane`` and ``fleet`` look alike. ``panels`` has their
kinds of panels, ``promql`` their expressions, ``page`` their frame, ``catalogue`` their export.
"""
