"""What a grid's cell says: how much less time routing takes there, with its interval, from paired runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.experiments.grid import Done
from engine.experiments.metrics import BY_KEY
from engine.experiments.statistics import Comparison, Verdict, compare
from engine.experiments.svg import counted, figure, percent, telling_digits

SETTLED = (Verdict.BETTER, Verdict.WORSE)


@dataclass(frozen=True, slots=True)
class Effect:
    """Gains are fractions of the time alone: above 0 it pays. `policies` were chosen, one a pair."""

    gain: float
    low: float | None  # of the 95 % interval; None where there are too few pairs
    high: float | None
    verdict: Verdict
    policies: tuple[str, ...]

    @property
    def pairs(self) -> int:
        return len(self.policies)

    @property
    def sure(self) -> bool | None:
        """Whether the interval leaves 0 out; None where there are too few pairs to say."""
        return None if self.verdict is Verdict.NONE else self.verdict in SETTLED

    def words(self) -> str:
        """ "+15.3 % (14.1 to 16.4, better, 5 pairs)"."""
        pairs = counted(self.pairs, "pair")
        if self.low is None or self.high is None or self.sure is None:
            return f"{percent(self.gain)} ({pairs}, too few for a verdict)"
        low, high = self.low * 100, self.high * 100
        digits = telling_digits(low, high)
        ends = f"{figure(low, digits)} to {figure(high, digits)}"
        return f"{percent(self.gain)} ({ends}, {self.verdict.value}, {pairs})"

    def short(self) -> str:
        """ "+15.3 ± 1.2", the wider half of the interval."""
        words = figure(self.gain * 100, 1, sign=True)
        if self.low is None or self.high is None:
            return words
        return f"{words} \u00b1 {figure(max(self.gain - self.low, self.high - self.gain) * 100, 1)}"


def effect(alone: Sequence[float], routed: dict[str, list[float]], seed: int = 0) -> Effect | None:
    """The better policy against the fastest alone, pair by pair; lower is better. None without a pair.

    Taking the better of several policies in the very runs that are judged would find a gain where there is
    only luck. So the policy of a pair is the one that was better in the other pairs.
    """
    pairs = len(alone)
    if not pairs or min(alone) <= 0:
        return None
    chosen = []
    for i in range(pairs):
        others = [j for j in range(pairs) if j != i] or [i]
        chosen.append(min(routed, key=lambda p: (sum(routed[p][j] for j in others), p)))
    c = compare(alone, [routed[p][i] for i, p in enumerate(chosen)], True, seed)
    return Effect(_gain(c, c.difference) or 0.0, _gain(c, c.high), _gain(c, c.low), c.verdict, tuple(chosen))


def _gain(c: Comparison, difference: float | None) -> float | None:
    share = c.share(difference)
    return None if share is None else -share + 0.0  # no minus before a 0


def effect_at(
    done: Done, point: str, alone: str, policies: Sequence[str], metric: str, seeds: Sequence[int]
) -> Effect | None:
    """The effect at one point of a grid, over the seeds for which everything has run."""
    before: list[float] = []
    after: dict[str, list[float]] = {p: [] for p in policies}
    for seed in seeds:
        runs = [done.runs.get((point, arm, seed)) for arm in (alone, *policies)]
        values = [None if r is None else r.figures[metric] for r in runs]
        whole = [v * BY_KEY[metric].scale for v in values if v is not None]
        if len(whole) == len(runs):
            before.append(whole[0])
            for policy, value in zip(policies, whole[1:], strict=True):
                after[policy].append(value)
    return effect(before, after)
