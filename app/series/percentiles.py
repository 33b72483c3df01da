"""Nearest-rank percentiles: always a value that was measured, the same as in exported results."""

from collections.abc import Sequence

import numpy as np

MIN_FOR_P95 = 20  # below it the 95th percentile is simply the maximum, and the screen says so
MIN_FOR_P99 = 100


def percentile(values: Sequence[float], q: float) -> float | None:
    """The q-th percentile (0 to 100) by nearest rank; None where there is nothing to rank."""
    if not values:
        return None
    return float(np.percentile(np.asarray(values, dtype=float), q, method="inverted_cdf"))
