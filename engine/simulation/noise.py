"""Step times that vary as those of a machine do, drawn anew for every run and the same for the same seed."""

import random


class StepNoise:
    """Factors for the step times of one run, lognormal with mean 1.

    Two sources, independent of each other and between runs: every step varies by `spread`, and a whole
    run of a backend by half of that (a device is a little faster or slower today). Without the second
    the noise of hundreds of steps would average out and runs would look more alike than real ones.
    """

    def __init__(self, seed: str, spread: float = 0.02) -> None:
        self._draw = random.Random(f"noise:{seed}")
        self._seed, self._spread = seed, spread
        self._runs: dict[str, float] = {}

    def factor(self, backend: str) -> float:
        """What the next step's time on `backend` is multiplied by."""
        if backend not in self._runs:
            own = random.Random(f"noise:{self._seed}:{backend}")  # whichever backend steps first
            self._runs[backend] = _lognormal(own, self._spread / 2)
        return self._runs[backend] * _lognormal(self._draw, self._spread)


def _lognormal(draw: random.Random, spread: float) -> float:
    return draw.lognormvariate(-spread * spread / 2, spread) if spread > 0 else 1.0
