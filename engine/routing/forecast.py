"""Forecast: when will each request on a backend get its first token, and when will it end?

Between two events (a request ends, a prompt ends, a slot opens, a request arrives) the set of active
requests is fixed, so a run of decode-only steps has a closed form:

    k steps cost  k (A[n] + c K) + c n k (k - 1) / 2

The forecast jumps from event to event; only steps that prefill are walked one by one. It follows the
scheduler's own rules: first come first served, decode first, one token budget, admission by slots and blocks.
Times are seconds of *work*, counted from when the published load was true; `on_the_wall` turns work into
wall time while two backends slow each other down.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush

from engine.profiling.step_time import StepTimeModel


@dataclass(slots=True)
class Job:
    """One unfinished request as the forecast sees it. Token counts are what is still to do."""

    key: int
    prefill: int  # prompt tokens still to compute
    decode: int  # tokens still to come, at least 1
    context: int  # tokens in the cache: computed, or restorable while queued
    blocks: int = 0  # KV blocks it needs (queued) or gives back at its end (active)
    ready_s: float = 0.0  # not before this
    came_s: float = 0.0  # its arrival on the router's clock; the forecast itself does not ask


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds of work until each job's first token (0 when it has one) and its end, by key."""

    first_s: dict[int, float]
    finish_s: dict[int, float]
    clear_s: float  # the last end


def forecast(
    model: StepTimeModel,
    slots: int,
    token_budget: int,
    active: Sequence[Job],
    queue: Sequence[Job],
    free_blocks: int,
    factor: float = 1.0,
) -> Forecast:
    """Predict every job of one backend. `factor` is the live correction of its step times."""
    return Track(model, slots, token_budget, active, free_blocks, factor).ended(queue)


class _TokensSeconds(dict[int, float]):
    """D[P] of a step-time model by P, each looked up in the model once."""

    def __init__(self, model: StepTimeModel) -> None:
        super().__init__()
        self._model = model

    def __missing__(self, tokens: int) -> float:
        found = self[tokens] = self._model.tokens_s(tokens)
        return found


@lru_cache(maxsize=64)
def _tables(model: StepTimeModel, rows: int) -> tuple[list[float], _TokensSeconds]:
    """(A by rows, D by tokens): to look them up in the model would be a good part of pricing a step."""
    return [model.rows_s(n) for n in range(rows + 1)], _TokensSeconds(model)


class Track:
    """A forecast under way. What several queues have in common at their beginning is walked only once:
    `admit` goes on until the last job of that part is admitted, `ended` forecasts the rest from there.

    All rows that decode grow by one token a step, so they are not counted one by one: each keeps the step
    at which it ends and what its context lacks to the number of steps, and the contexts only as a sum.
    """

    __slots__ = (
        "_c", "_context", "_factor", "_filling", "_finish", "_first", "_free_blocks", "_joined", "_mixed",
        "_model", "_now", "_rows_s", "_running", "_slots", "_steps", "_token_budget", "_tokens_s",
    )  # fmt: skip

    def __init__(
        self,
        model: StepTimeModel,
        slots: int,
        token_budget: int,
        active: Sequence[Job],
        free_blocks: int,
        factor: float = 1.0,
    ) -> None:
        self._model, self._slots, self._token_budget, self._factor = model, slots, token_budget, factor
        rows_s, self._tokens_s = _tables(model, max(slots, len(active)))
        self._rows_s = [seconds * factor for seconds in rows_s]
        self._c, self._mixed = model.context_s * factor, model.mixed_s * factor
        self._free_blocks = free_blocks
        self._now = 0.0
        self._steps = 0  # taken so far
        # Plain lists and tuples: this is the router's whole cost.
        # [key, prefill, decode, context, blocks], first come first
        self._filling = [[j.key, j.prefill, j.decode, j.context, j.blocks] for j in active if j.prefill > 0]
        decoding = [j for j in active if j.prefill <= 0]
        # A heap of (ends after step, place in the order of joining, key, context - steps, blocks)
        self._running = [(j.decode, i, j.key, j.context, j.blocks) for i, j in enumerate(decoding)]
        heapify(self._running)
        self._joined = len(decoding)
        self._context = sum([j.context for j in decoding])
        self._first: dict[int, float] = {j.key: 0.0 for j in decoding}
        self._finish: dict[int, float] = {}

    def admit(self, queue: Sequence[Job]) -> None:
        """Go on until every job of `queue` is admitted; those of a later call queue behind them."""
        if queue:
            self._go(queue, to_the_end=False)

    def ended(self, queue: Sequence[Job] = ()) -> Forecast:
        """The forecast with `queue` behind what was admitted so far; this track itself stays where it is."""
        fork: Track = Track.__new__(Track)
        fork._model, fork._slots, fork._token_budget = self._model, self._slots, self._token_budget
        fork._factor, fork._rows_s, fork._c, fork._mixed = self._factor, self._rows_s, self._c, self._mixed
        fork._tokens_s = self._tokens_s
        fork._now, fork._steps, fork._context = self._now, self._steps, self._context
        fork._free_blocks, fork._joined = self._free_blocks, self._joined
        fork._filling = [row.copy() for row in self._filling]
        fork._running = self._running.copy()
        fork._first, fork._finish = self._first.copy(), self._finish.copy()
        fork._go(queue, to_the_end=True)
        return Forecast(fork._first, fork._finish, max(fork._finish.values(), default=0.0))

    def _go(self, queue: Sequence[Job], to_the_end: bool) -> None:
        model, slots, factor, rows_s, c = self._model, self._slots, self._factor, self._rows_s, self._c
        first, finish, now, free_blocks = self._first, self._finish, self._now, self._free_blocks
        filling, running, context = self._filling, self._running, self._context
        taken, joined, tokens_s = self._steps, self._joined, self._tokens_s
        attention_s, chunk_s, start_s = model.attention_s, model.chunk_s, model.start_s
        place, count = 0, len(queue)  # queue[place] is the head
        while True:
            n = len(running)
            while place < count and n + len(filling) < slots:
                head = queue[place]
                alone = not n and not filling
                if head.ready_s > now:
                    if not alone:
                        break
                    now = head.ready_s
                # A backend with nothing to do admits whatever comes: the pool is then all free.
                if head.blocks > free_blocks and not alone:
                    break
                place += 1
                free_blocks -= head.blocks
                prefill = head.prefill if head.prefill > 1 else 1
                filling.append([head.key, prefill, head.decode, head.context, head.blocks])
            if place == count and not (to_the_end and (n or filling)):
                break
            filled = 0  # so many of `filling`, the first ones, get their first token in this step
            if filling:
                budget, tokens, chunks, attention = self._token_budget - n, 0, 0, 0.0
                for row in filling:
                    if budget <= 0:
                        break
                    _, length, _, cached, _ = row
                    if length <= budget:
                        filled += 1
                    else:
                        length = budget
                        row[1] -= length
                    row[3] = cached + length
                    attention += length * (cached + length / 2)
                    budget -= length
                    tokens += length
                    chunks += 1
                filling_s = 0.0
                if tokens:  # as `StepTimeModel.chunks_s` has it
                    starts = max(0.0, chunks * attention / tokens - tokens / 2) if start_s else 0.0
                    filling_s = (
                        tokens_s[tokens] + attention_s * attention + chunk_s * chunks + start_s * starts
                    )
                now += rows_s[n] + c * (context + n) + filling_s * factor
                if n and tokens:
                    now += self._mixed
                steps = 1
            else:
                steps = running[0][0] - taken
                per_step = rows_s[n] + c * (context + n)
                if place < count and n < slots and queue[place].ready_s > now:
                    steps = min(steps, steps_until(queue[place].ready_s - now, per_step, c * n))
                now += steps * per_step + c * n * steps * (steps - 1) / 2
            taken += steps
            context += n * steps
            if filled:
                for key, _, decode, cached, blocks in filling[:filled]:
                    first[key] = now
                    heappush(running, (taken + decode - 1, joined, key, cached - taken, blocks))
                    context += cached
                    joined += 1
                del filling[:filled]
            while running and running[0][0] <= taken:
                _, _, key, lacking, blocks = heappop(running)
                finish[key] = now
                context -= lacking + taken
                free_blocks += blocks
        self._now, self._free_blocks, self._context = now, free_blocks, context
        self._steps, self._joined = taken, joined


def steps_until(gap_s: float, first_s: float, growth_s: float) -> int:
    """Fewest decode steps that take at least `gap_s`: k first + growth k (k - 1) / 2 >= gap."""
    if growth_s <= 0 and first_s <= 0:
        return 1  # a fit may price a step at nothing
    if growth_s <= 0:
        return max(1, math.ceil(gap_s / first_s - 1e-9))
    half = first_s - growth_s / 2
    return max(1, math.ceil((-half + math.sqrt(half * half + 2 * growth_s * gap_s)) / growth_s - 1e-9))


def both_busy_s(mine: Forecast, my_chi: float, other: Forecast, other_chi: float) -> float:
    """Wall seconds during which two backends that both start now slow each other down."""
    return min(mine.clear_s * (1 + my_chi), other.clear_s * (1 + other_chi))


def on_the_wall(work_s: float, chi: float, both_s: float) -> float:
    """Wall time of `work_s` of work when the first `both_s` wall seconds run 1 + chi slower."""
    slow_work = both_s / (1 + chi)
    return work_s * (1 + chi) if work_s <= slow_work else both_s + work_s - slow_work


def all_on_the_wall(works_s: Iterable[float], chi: float, both_s: float) -> list[float]:
    """`on_the_wall` of many, without a call for each: a decision asks for some 300."""
    slow = 1 + chi
    slow_work = both_s / slow
    return [work_s * slow if work_s <= slow_work else both_s + work_s - slow_work for work_s in works_s]
