"""When requests arrive: offsets in seconds from the start of a burst, never waiting for a reply."""

import random


def evenly(count: int, gap_s: float, start_s: float = 0.0) -> list[float]:
    """One every `gap_s` seconds."""
    return [round(start_s + index * gap_s, 6) for index in range(count)]


def poisson(count: int, rate_rps: float, rng: random.Random) -> list[float]:
    """Independent arrivals, `rate_rps` a second on average. The first comes at 0."""
    return _summed([rng.expovariate(rate_rps) for _ in range(count - 1)])


def gamma(count: int, rate_rps: float, shape: float, rng: random.Random) -> list[float]:
    """Gamma-distributed gaps: `shape` 1 is Poisson, below 1 the arrivals clump. The first comes at 0."""
    scale_s = 1.0 / (rate_rps * shape)
    return _summed([rng.gammavariate(shape, scale_s) for _ in range(count - 1)])


def _summed(gaps_s: list[float]) -> list[float]:
    offsets_s = [0.0]
    for gap_s in gaps_s:
        offsets_s.append(round(offsets_s[-1] + gap_s, 6))
    return offsets_s
