"""Batched prices: what placing one request on each backend does to everybody's waiting.

The goal of `total-delay` is the sum, over all outstanding requests and the new one, of the time until each
ends. Leaving the fastest backend must also not hurt the request itself, nor make it the one for which
everybody waits at the end: two guards, because prices are estimates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.profiling.step_time import StepTimeModel
from engine.routing.forecast import Forecast, Job, both_busy_s, forecast, on_the_wall

LEAST_MARGIN = 0.05  # h is never below this share of the request's own E2E


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
    factor: float = 1.0  # live correction
    error: float = 0.0  # live relative error of the step-time model

    def without(self) -> Forecast:
        return forecast(
            self.model,
            self.slots,
            self.token_budget,
            self.active,
            self.queue,
            self.free_blocks,
            self.factor,
        )

    def with_new(self, tokens: int | None = None) -> Forecast:
        new = self.new if tokens is None else _with_tokens(self.new, tokens)
        queue = [*self.queue, new]
        return forecast(
            self.model, self.slots, self.token_budget, self.active, queue, self.free_blocks, self.factor
        )


@dataclass(frozen=True, slots=True)
class Price:
    """What one placement would mean, in seconds from now."""

    delay_s: float  # D: until each outstanding request and the new one ends, summed over all backends
    ttft_s: float  # of the new request
    e2e_s: float
    p90_s: float  # its end if its reply is long
    clear_s: float  # when this backend is clear, the new request on it


def _with_tokens(job: Job, tokens: int) -> Job:
    return Job(job.key, job.prefill, max(1, tokens), job.context, job.blocks, job.ready_s)


def prices(outlooks: Sequence[Outlook]) -> list[Price]:
    """The price of placing the new request on each backend, all others left as they are."""
    idle = [o.without() for o in outlooks]
    out = []
    for k, mine in enumerate(outlooks):
        placed = mine.with_new()
        forecasts = [placed if i == k else idle[i] for i in range(len(outlooks))]
        walls = _both_s(outlooks, forecasts)
        delay = 0.0
        for outlook, cast, both in zip(outlooks, forecasts, walls, strict=True):
            chi = outlook.model.interference
            ends = sum(on_the_wall(s, chi, both) for s in cast.finish_s.values())
            delay += ends - len(cast.finish_s) * outlook.since_s
        chi, both, key = mine.model.interference, walls[k], mine.new.key
        e2e = on_the_wall(placed.finish_s[key], chi, both) - mine.since_s
        p90 = e2e
        if mine.new_p90 > mine.new.decode:
            p90 = on_the_wall(mine.with_new(mine.new_p90).finish_s[key], chi, both) - mine.since_s
        ttft = on_the_wall(placed.first_s[key], chi, both) - mine.since_s
        clear = on_the_wall(placed.clear_s, chi, both) - mine.since_s
        out.append(Price(delay, ttft, e2e, p90, clear))
    return out


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


def total_delay(outlooks: Sequence[Outlook], table: Sequence[Price], fastest: int) -> int:
    """The place to go to: the fastest, unless another passes the margin and both guards against it."""
    fast = table[fastest]
    margin_s = max(LEAST_MARGIN, 2 * outlooks[fastest].error) * fast.e2e_s
    best = fastest
    for place, price in enumerate(table):
        if place == fastest:
            continue
        # More error on the slower backend raises its own margin: over-rating it is what does harm.
        own_margin = max(margin_s, 2 * outlooks[place].error * fast.e2e_s)
        passes = (
            fast.delay_s - price.delay_s > own_margin
            and price.ttft_s <= fast.ttft_s
            and price.p90_s <= fast.clear_s
        )
        if passes and (best == fastest or price.delay_s < table[best].delay_s):
            best = place
    return best


def clears_first(table: Sequence[Price], fastest_first: Sequence[int]) -> int:
    """`batched-clear`: the backend that would be clear first, the new request on it; ties to the faster."""
    return min(fastest_first, key=lambda place: table[place].clear_s)
