"""The life of a request as stretches of time, and the axis that holds them all. No Qt."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from app.series.board import RequestRow
from app.series.rows import renewed_s
from engine.request import RequestState

STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
MOST_TICKS = 7


@dataclass(frozen=True, slots=True)
class Stretch:
    kind: str  # "queued", "prefill", "decode", "forecast"
    start_s: float
    end_s: float


def stretches(row: RequestRow, now_s: float) -> list[Stretch]:
    """What the request has been doing, in order, up to now; then what was forecast for the rest."""
    finished = row.state is RequestState.FINISHED
    end = row.finished_s if row.finished_s is not None else row.arrival_s if finished else now_s
    admitted = min(end, row.admitted_s if row.admitted_s is not None else end)
    first = min(end, row.first_token_s if row.first_token_s is not None else end)
    out = [
        Stretch("queued", row.arrival_s, admitted),
        Stretch("prefill", admitted, first),
        Stretch("decode", first, end),
    ]
    predicted = renewed_s(row)
    if not finished and predicted is not None:
        out.append(Stretch("forecast", now_s, row.arrival_s + predicted))
    return [s for s in out if s.end_s > s.start_s]


def extent(rows: Sequence[RequestRow], origin_s: float, now_s: float) -> tuple[float, float]:
    """(end of the axis, distance of its ticks), in seconds from the origin: round, so that it rests."""
    latest = 1.0
    for row in rows:
        if row.state is not RequestState.FINISHED:
            latest = max(latest, now_s - origin_s, row.arrival_s + (renewed_s(row) or 0.0) - origin_s)
        elif row.finished_s is not None:
            latest = max(latest, row.finished_s - origin_s)
    step = next((s for s in STEPS_S if latest / s <= MOST_TICKS), math.ceil(latest / MOST_TICKS))
    return math.ceil(latest / step - 1e-9) * float(step), float(step)
