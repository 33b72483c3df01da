"""Percentiles as the project means them everywhere: nearest rank, a value that really occurred."""

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest value that at least `percent` % of the values do not exceed; None of nothing.

    The same as numpy's method "inverted_cdf". p95 of fewer than 20 values is their maximum.
    """
    if not values:
        return None
    ordered = sorted(values)
    rank = max(1, math.ceil(percent / 100 * len(ordered) - 1e-9))
    return ordered[rank - 1]
