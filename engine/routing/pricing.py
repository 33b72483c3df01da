"""Batched prices: what placing one request on each backend does to everybody's waiting.

The goal of `total-delay` is the sum, over all outstanding requests and the new one, of the time until each
ends. Leaving the fastest backend must also not hurt the request itself, nor whoever waits longest for a first
token, nor make it the one for which everybody waits at the end: guards, because prices are estimates and
because two backends that work at once slow each other down.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from engine.profiling.step_time import StepTimeModel
from engine.receipt import Candidate
from engine.routing.forecast import Forecast, Job, Track, all_on_the_wall, both_busy_s, on_the_wall
from engine.weights import DEFAULT_WEIGHTS, PolicyWeights

ALL_CLEAR = 0.01  # the time until everything is done may grow by this share and no more
WORST_TTFT = 0.02  # the longest wait for a first token may grow by this much and no more
NEXT_TTFT = 0.01  # and so may the wait of a request that would come next
NEXT_TTFT_WARM = 0.02  # where the new one is warm: its stay on the other backend is short
WARM = 0.9  # share of the prompt that is restored
_NEXT = -1  # key of the request that would come next


@dataclass(frozen=True, slots=True)
class Outlook:
    """One backend as the forecast needs it, with the incoming request as `new`."""

    model: StepTimeModel
    slots: int
    token_budget: int
    active: Sequence[Job]
    queue: Sequence[Job]
    free_blocks: int
    new: Job
    new_p90: int  # tokens the new reply may well need
    since_s: float  # seconds since the published load was true
    now_s: float  # on the router's clock, as the arrivals of its jobs
    factor: float = 1.0  # live correction
    error: float = 0.0  # live relative error of the step-time model
    is_head: bool = False  # `new` waits here already, before everybody else in the queue

    _walked: Track = field(init=False, repr=False, compare=False)  # until everybody who waits is admitted
    # What the prices and the guards both ask for: the forecast with the new request, and without.
    _known: dict[bool, Forecast] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        walked = self._track()
        walked.admit(self.queue)
        object.__setattr__(self, "_walked", walked)

    def without(self) -> Forecast:
        if False not in self._known:
            self._known[False] = self._walked.ended()
        return self._known[False]

    def with_new(self) -> Forecast:
        if True not in self._known:
            self._known[True] = self._with(self.new)
        return self._known[True]

    def with_long(self) -> Forecast:
        """With the new request, its reply as long as it may well be."""
        if self.new_p90 <= self.new.decode:
            return self.with_new()
        return self._with(replace(self.new, decode=self.new_p90))

    def with_next(self, after: Job, new: bool) -> Forecast:
        """With one more request behind everybody else."""
        return self._with(self.new, after) if new else self._walked.ended([after])

    def _with(self, new: Job, *behind: Job) -> Forecast:
        if self.is_head:
            return self._track().ended([new, *self.queue, *behind])
        return self._walked.ended([new, *behind])

    def _track(self) -> Track:
        return Track(self.model, self.slots, self.token_budget, self.active, self.free_blocks, self.factor)


@dataclass(frozen=True, slots=True)
class _Lane:
    """One backend under a placement: its forecast on the wall clock, seconds from now."""

    outlook: Outlook
    cast: Forecast
    both_s: float  # wall seconds during which another backend computes as well
    has_new: bool  # the new request is placed here

    def wall_s(self, work_s: float) -> float:
        return on_the_wall(work_s, self.outlook.model.interference, self.both_s) - self.outlook.since_s

    def walls_s(self, works_s: Iterable[float]) -> list[float]:
        since_s = self.outlook.since_s
        walls = all_on_the_wall(works_s, self.outlook.model.interference, self.both_s)
        return [wall - since_s for wall in walls]

    def delay_s(self) -> float:
        return sum(self.walls_s(self.cast.finish_s.values()))

    def worst_ttft_s(self) -> float:
        """Longest time from arrival to first token among those here that have none yet."""
        jobs = [*self.outlook.active, *self.outlook.queue, *([self.outlook.new] if self.has_new else [])]
        first_s, now_s = self.cast.first_s, self.outlook.now_s
        walls = self.walls_s([first_s[j.key] for j in jobs])
        waits = [wall + now_s - j.came_s for wall, j in zip(walls, jobs, strict=True) if first_s[j.key] > 0]
        return max(waits, default=0.0)


@dataclass(frozen=True, slots=True)
class Price:
    """What one placement would mean, in seconds from now."""

    delay_s: float  # D: until each outstanding request and the new one ends, summed over all backends
    ttft_s: float  # of the new request
    e2e_s: float
    p90_s: float  # its end if its reply is long
    clear_s: float  # when this backend is clear, the new request on it
    all_clear_s: float  # when every backend is clear
    _lanes: Sequence[_Lane] = field(repr=False, compare=False)

    @property
    def worst_ttft_s(self) -> float:
        """Longest TTFT among all who have no token yet, the new request included.

        Worked out when asked for: most placements miss the margin, and then no guard looks at it.
        """
        return max(lane.worst_ttft_s() for lane in self._lanes)


def prices(outlooks: Sequence[Outlook]) -> list[Price]:
    """The price of placing the new request on each backend, all others left as they are."""
    idle = [o.without() for o in outlooks]
    return [_price(outlooks, idle, place) for place in range(len(outlooks))]


def _price(outlooks: Sequence[Outlook], idle: Sequence[Forecast], place: int) -> Price:
    mine = outlooks[place]
    placed = mine.with_new()
    casts = [placed if i == place else cast for i, cast in enumerate(idle)]
    both_s = _both_s(outlooks, casts)
    lanes = [_Lane(o, casts[i], both_s[i], has_new=i == place) for i, o in enumerate(outlooks)]
    own = lanes[place]
    # If the reply is long: its own end, and that of whoever shares the backend with it.
    long = mine.with_long()
    return Price(
        delay_s=sum(lane.delay_s() for lane in lanes),
        ttft_s=own.wall_s(placed.first_s[mine.new.key]),
        e2e_s=own.wall_s(placed.finish_s[mine.new.key]),
        p90_s=own.wall_s(long.clear_s),
        clear_s=own.wall_s(placed.clear_s),
        all_clear_s=max(lane.wall_s(lane.cast.clear_s) for lane in lanes if lane.cast.finish_s),
        _lanes=lanes,
    )


def _both_s(outlooks: Sequence[Outlook], forecasts: Sequence[Forecast]) -> list[float]:
    """For each backend: wall seconds during which another one computes as well."""
    out = []
    for i, mine in enumerate(forecasts):
        chi = outlooks[i].model.interference
        others = [
            both_busy_s(mine, chi, other, outlooks[j].model.interference)
            for j, other in enumerate(forecasts)
            if j != i
        ]
        out.append(max(others, default=0.0))
    return out


def cost_s(price: Price, weights: PolicyWeights) -> float:
    """What `total-delay` compares: D, with the waiting of the others at its weight."""
    if weights.others == 1:
        return price.delay_s
    return price.e2e_s + weights.others * (price.delay_s - price.e2e_s)


def margin_s(
    outlooks: Sequence[Outlook], table: Sequence[Price], home: int, place: int, weights: PolicyWeights
) -> float:
    """Seconds of cost that going to `place` must save, compared with `home`."""
    # Error raises it. That of the other backend counts as well: over-rating it is what does harm.
    return max(weights.margin, 2 * outlooks[home].error, 2 * outlooks[place].error) * table[home].e2e_s


def total_delay(
    outlooks: Sequence[Outlook],
    table: Sequence[Price],
    home: int,
    fastest: int | None = None,
    weights: PolicyWeights = DEFAULT_WEIGHTS,
) -> int:
    """The place to go to: `home`, unless another passes the margin and every guard against it.

    Home is the fastest backend for a request that arrives, and where it waits for one that could move.
    """
    stay = table[home]
    best = home
    for place, price in enumerate(table):
        if place == home:
            continue
        saved_s = cost_s(stay, weights) - cost_s(price, weights)
        if saved_s <= margin_s(outlooks, table, home, place, weights):
            continue
        if best != home and cost_s(price, weights) >= cost_s(table[best], weights):
            continue
        if weights.guards and not (
            price.ttft_s <= stay.ttft_s
            and price.p90_s <= stay.clear_s
            and price.all_clear_s <= (1 + ALL_CLEAR) * stay.all_clear_s
            and price.worst_ttft_s <= (1 + WORST_TTFT) * stay.worst_ttft_s
            and _next_may_come(outlooks, home, place, home if fastest is None else fastest)
        ):
            continue
        best = place
    return best


def _next_may_come(outlooks: Sequence[Outlook], home: int, place: int, fastest: int) -> bool:
    """Would a request like this one, arriving next at the fastest backend, wait hardly longer?

    Whoever arrives is not asked by the guards above: without this the two backends slow each other down
    at the expense of those who come later.
    """
    new = outlooks[place].new
    warm = new.context >= WARM * (new.context + new.prefill)
    after = replace(outlooks[fastest].new, key=_NEXT, ready_s=outlooks[fastest].since_s)
    stay, go = (_next_ttft_s(outlooks, p, fastest, after) for p in (home, place))
    return go <= (1 + (NEXT_TTFT_WARM if warm else NEXT_TTFT)) * stay


def _next_ttft_s(outlooks: Sequence[Outlook], place: int, fastest: int, after: Job) -> float:
    """TTFT of `after` at the fastest backend when the new request goes to `place`."""
    casts = []
    for i, outlook in enumerate(outlooks):
        if i == fastest:
            casts.append(outlook.with_next(after, new=i == place))
        else:
            casts.append(outlook.with_new() if i == place else outlook.without())
    lane = _Lane(
        outlooks[fastest], casts[fastest], _both_s(outlooks, casts)[fastest], has_new=fastest == place
    )
    return lane.wall_s(casts[fastest].first_s[_NEXT])


def clears_first(table: Sequence[Price], fastest_first: Sequence[int]) -> int:
    """`batched-clear`: the backend that would be clear first, the new request on it; ties to the faster."""
    return min(fastest_first, key=lambda place: table[place].clear_s)


def priced(
    candidates: Sequence[Candidate],
    scores: Sequence[float | None],
    outlooks: Sequence[Outlook],
    table: Sequence[Price],
    home: int | None,
    weights: PolicyWeights,
) -> list[Candidate]:
    """The candidates with scores and the prices a receipt tells; margins where compared with `home`."""
    return [
        replace(
            candidate,
            score=score,
            delay_s=price.delay_s,
            ttft_s=price.ttft_s,
            e2e_s=price.e2e_s,
            p90_s=price.p90_s,
            clear_s=price.clear_s,
            margin_s=None if home is None or home == i else margin_s(outlooks, table, home, i, weights),
        )
        for i, (candidate, score, price) in enumerate(zip(candidates, scores, table, strict=True))
    ]
