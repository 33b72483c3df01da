"""How long will the reply be? An estimate per class of request, learned from replies that ended.

Classes, from special to general: the request's tag, the root of its prefix, its size (log2 of prompt length
x budget), all. Each keeps its last 256 lengths; replies cut at `max_new_tokens` are censored: they say only
"at least that long". With g tokens generated the estimate is E[L - g | L > g], capped by the budget and
shrunk towards the parent class by n / (n + 8).
"""

import math
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.request import Request, RequestId

KEPT = 256
SHRINK = 8.0
ESTIMATES = ("class", "budget", "ratio", "oracle")
_KNOWN = 4096
_ROOT_TOKENS = 64  # of a prompt without a tag, that say which prefix it has
MIN_LIVE = 8  # finished replies before the live error says anything


@dataclass(frozen=True, slots=True)
class Remaining:
    """Tokens still to come: `mean` for pricing, `p90` for the guard on the last to finish."""

    mean: float
    p90: float


@dataclass(slots=True)
class _Class:
    lengths: deque[tuple[int, bool]] = field(default_factory=lambda: deque(maxlen=KEPT))  # (tokens, censored)
    curve: "_Curve | None" = None  # rebuilt after every addition


@dataclass(frozen=True, slots=True)
class _Curve:
    """The Kaplan-Meier estimate of the length's distribution: probability mass at each seen length."""

    lengths: tuple[int, ...]
    mass: tuple[float, ...]
    count: int
    # From each place on: minus the mass (so that it ascends), and the mean of the lengths times the mass.
    _less_mass: list[float] = field(init=False)
    _weighted: list[float] = field(init=False)

    def __post_init__(self) -> None:
        less_mass, weighted = [0.0], [0.0]
        for n, m in zip(reversed(self.lengths), reversed(self.mass), strict=True):
            less_mass.append(less_mass[-1] - m)
            weighted.append(weighted[-1] + m * n)
        object.__setattr__(self, "_less_mass", less_mass[::-1])
        object.__setattr__(self, "_weighted", weighted[::-1])

    def remaining(self, generated: int) -> tuple[float, float] | None:
        """(mean, p90) of what follows `generated` tokens; None when nothing seen was longer."""
        i = bisect_right(self.lengths, generated)
        total = -self._less_mass[i]
        if total <= 1e-9:
            return None
        # The first length up to which nine tenths of that mass lie.
        place = bisect_left(self._less_mass, -(0.1 * total + 1e-12), i + 1)
        p90 = self.lengths[min(place, len(self.lengths)) - 1]
        return self._weighted[i] / total - generated, float(p90 - generated)


def _curve(lengths: Iterable[tuple[int, bool]]) -> _Curve:
    """Kaplan and Meier (1958). What survives beyond the last length is put on it: the budget cuts there."""
    seen = sorted(lengths)
    at_risk, alive = len(seen), 1.0
    values: list[int] = []
    mass: list[float] = []
    i = 0
    while i < len(seen):
        value = seen[i][0]
        ended = censored = 0
        while i < len(seen) and seen[i][0] == value:
            ended, censored = ended + (not seen[i][1]), censored + seen[i][1]
            i += 1
        step = alive * ended / at_risk
        if step > 0:
            values.append(value)
            mass.append(step)
            alive -= step
        at_risk -= ended + censored
    if alive > 1e-12 and seen:
        if values and values[-1] == seen[-1][0]:
            mass[-1] += alive
        else:
            values.append(seen[-1][0])
            mass.append(alive)
    return _Curve(tuple(values), tuple(mass), len(seen))


def classes_of(request: Request) -> tuple[str, ...]:
    """Names of the request's classes, most special first."""
    # A tag says what the request is; without one the prefix does, and without that its size.
    if request.tag:
        return (f"tag:{request.tag}", "all")
    if request.prompt_tokens > _ROOT_TOKENS:
        root = zlib.crc32(array("q", request.prompt[:_ROOT_TOKENS]).tobytes())
        return (f"root:{root:x}", "all")
    size = int(math.log2(max(1, request.prompt_tokens * request.sampling.max_new_tokens)))
    return (f"size:{size}", "all")


class LengthEstimator:
    """`remaining` prices a request, `observe` learns from one that ended."""

    def __init__(self, kind: str = "class") -> None:
        assert kind in ESTIMATES
        self.kind = kind
        self._classes: dict[str, _Class] = {}
        self._errors: deque[float] = deque(maxlen=64)
        self._known: dict[tuple[str, int, int], Remaining] = {}  # estimates since the last reply ended
        self._names: dict[RequestId, tuple[Request, tuple[str, ...]]] = {}
        self._ratio = 0.7  # of the budget, for the kind "ratio"
        self.edition = 0  # counts what was learned: within one, estimates stay the same

    def remaining(self, request: Request, generated: int = 0) -> Remaining:
        """Tokens still to come after `generated`, at least 1 and at most what the budget leaves."""
        left = max(1, request.sampling.max_new_tokens - generated)
        if self.kind in ("budget", "oracle") or request.sampling.ignore_eos:
            return Remaining(float(left), float(left))  # ignore_eos runs to its budget: nothing to guess
        if self.kind == "ratio":
            guess = max(1.0, self._ratio * left)
            return Remaining(guess, float(left))
        named = self._names.get(request.id)
        names = named[1] if named is not None and named[0] is request else self._classes_of(request)
        special = names[0] if names[0] in self._classes else "all"  # of a class never seen nothing is known
        key = (special, generated, left)
        found = self._known.get(key)
        if found is None:
            mean, p90 = self._shrunk(names, generated, left)
            found = Remaining(min(max(1.0, mean), left), min(max(1.0, p90), left))
            if len(self._known) < _KNOWN:
                self._known[key] = found
        return found

    def observe(self, request: Request, length: int, censored: bool) -> None:
        """A reply ended with `length` tokens; censored when the budget or the user cut it."""
        if not censored and length > 0:
            # What would have been said of it at its arrival: the live error.
            self._errors.append(abs(self.remaining(request).mean - length) / length)
        self._known.clear()
        self.edition += 1
        for name in classes_of(request):
            entry = self._classes.setdefault(name, _Class())
            entry.lengths.append((length, censored))
            entry.curve = None
        used = length / request.sampling.max_new_tokens
        # SGLang's rule in one line: fall slowly while it proves too high, jump when it proves too low.
        self._ratio = max(self._ratio, used) if used > self._ratio else max(0.098, self._ratio - 0.001)

    def _classes_of(self, request: Request) -> tuple[str, ...]:
        """`classes_of`, kept: asked for every outstanding request at every decision."""
        if len(self._names) >= _KNOWN:
            self._names.clear()
        names = classes_of(request)
        self._names[request.id] = (request, names)
        return names

    @property
    def live_error(self) -> float | None:
        """Mean relative error of the last predictions; None before there are some."""
        if len(self._errors) < MIN_LIVE:
            return None
        return sum(self._errors) / len(self._errors)

    def _shrunk(self, names: Sequence[str], generated: int, left: int) -> tuple[float, float]:
        """(mean, p90) of the most special class, mixed with its parents as far as it has been seen."""
        mean, p90 = float(left), float(left)  # knowing nothing: the budget
        for name in reversed(names):
            entry = self._classes.get(name)
            if entry is None or not entry.lengths:
                continue
            if entry.curve is None:
                entry.curve = _curve(entry.lengths)
            here = entry.curve.remaining(generated)
            if here is None:
                continue
            weight = entry.curve.count / (entry.curve.count + SHRINK)
            mean = weight * here[0] + (1 - weight) * mean
            p90 = weight * here[1] + (1 - weight) * p90
        return mean, p90

    def to_json(self) -> dict[str, list[tuple[int, bool]]]:
        return {name: list(entry.lengths) for name, entry in self._classes.items()}

    def restore(self, data: dict[str, list[tuple[int, bool]]]) -> None:
        """Take what `to_json` gave; unreadable classes are left out one by one."""
        self._known.clear()
        self.edition += 1
        for name, lengths in data.items():
            try:
                pairs = [(int(n), bool(c)) for n, c in lengths]
            except (TypeError, ValueError):
                continue
            self._classes[name] = _Class(deque(pairs, maxlen=KEPT))
