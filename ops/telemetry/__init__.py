"""How a run is observed: metrics, dashboards, alerts, logs and trackers (TensorBoard, W&B, MLflow).

May import every other room, and of ops only records and config. A reader starts at ``metrics/run_metrics``,
which measures in the driver. ``logs`` and ``trackers`` stand alone.
"""
