"""Commands that look at runs, live or ended: top, runs, stop, rollouts, fleet, scale, buffer, dashboards."""
