"""The PromQL expressions that most panels use. ``panels`` fills in ``RUN`` and ``WINDOW``. Pure."""

from __future__ import annotations


def rate(metric: str, *by: str, where: str = "") -> str:
    """Return the per-second rate of a counter, summed over everything but the labels ``by``."""
    return f"sum{_by(by)} (rate({metric}{_select(where)}[WINDOW]))"


def increase(metric: str, *by: str) -> str:
    """Return a counter's growth within the window, summed over everything but the labels ``by``."""
    return f"sum{_by(by)} (increase({metric}{_select('')}[WINDOW]))"


def share(metric: str, part: str, *by: str) -> str:
    """Return the share of a counter's increase with the labels ``part``, e.g. ``outcome="correct"``."""
    return f"{rate(metric, *by, where=part)} / {rate(metric, *by)}"


def quantile(q: float, histogram: str, *by: str, where: str = "") -> str:
    """Return a quantile of a histogram's observations within the window."""
    return f"histogram_quantile({q:g}, {rate(histogram + '_bucket', *by, 'le', where=where)})"


def mean(histogram: str, *by: str, where: str = "") -> str:
    """Return the mean of a histogram's observations within the window."""
    return f"{rate(histogram + '_sum', *by, where=where)} / {rate(histogram + '_count', *by, where=where)}"


def signed_mean(histogram: str, *by: str, where: str = "") -> str:
    """Return the mean of observations that may be negative; a rate would take a falling sum for a restart."""
    total = f"sum{_by(by)} (delta({histogram}_sum{_select(where)}[WINDOW]))"
    return f"{total} / sum{_by(by)} (increase({histogram}_count{_select(where)}[WINDOW]))"


def buckets(histogram: str) -> str:
    """Return the number of observations in each bucket within the window, as a heatmap draws them."""
    return increase(histogram + "_bucket", "le")


def gauge(metric: str, where: str = "") -> str:
    """Return the value itself."""
    return metric + _select(where)


def largest(metric: str, *by: str, where: str = "") -> str:
    """Return the largest value over everything but the labels ``by``."""
    return f"max{_by(by)} ({metric}{_select(where)})"


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""


def _select(where: str) -> str:
    return "{RUN, " + where + "}" if where else "{RUN}"
