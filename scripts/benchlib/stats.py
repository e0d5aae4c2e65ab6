"""The few statistics of the benchmark. Medians, because a launch that met the cron job says nothing about launching."""

import statistics


def median(values):
    """The median, or None of nothing."""
    return statistics.median(values) if values else None


def spread(values):
    """The interquartile range as a part of the median: how shaky a sitting was."""
    if len(values) < 4:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    middle = statistics.median(values)
    return (high - low) / middle if middle else 0.0


def middle(values):
    """The middle one of the sittings (the lower of two, so that no figure is made up)."""
    known = sorted(value for value in values if value is not None)
    return known[(len(known) - 1) // 2] if known else None


def ratio(one, other):
    """one / other where both are known."""
    return one / other if one is not None and other else None
