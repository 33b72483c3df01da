"""A board that stands still at a moment of the past: what the time cursor shows. No Qt."""

from bisect import bisect_right
from collections import deque
from dataclasses import replace

from app.series.board import BackendView, Board, RequestRow
from engine.events import BackendState
from engine.request import RequestState

STEPS_SHOWN = 64  # rates and the variation of steps come from them
FADE_S = 1.0
TAIL = 20  # token times that the rate of a slot is made of


def moment(live: Board, time_s: float) -> Board:
    """The backends and the unfinished requests of `live` as they were at `time_s` (engine seconds)."""
    past = Board()
    past.model, past.ready, past.run = live.model, live.ready, live.run
    for name, view in live.backends.items():
        past.backends[name] = _view(live, name, view, time_s)
    running = {r.request_id for view in past.backends.values() for r in view.load.requests if r.active}
    for request_id, row in live.requests.items():
        if row.arrival_s <= time_s and (row.finished_s is None or row.finished_s > time_s):
            past.requests[request_id] = row_at(row, time_s, request_id in running)
    return past


def _view(live: Board, name: str, now: BackendView, time_s: float) -> BackendView:
    view = BackendView(now.info, BackendState.READY, steps=deque(maxlen=STEPS_SHOWN))
    track = live.frames.tracks.get(name)
    if track is None:
        view.blocks = dict(now.blocks)
        return view
    count = track.count(time_s)
    view.blocks = track.blocks(count)
    for frame in track.frames[max(0, count - STEPS_SHOWN) : count]:
        if frame.report.decode_rows or frame.report.prefill_tokens:
            view.steps.append(frame.report)
        view.evicted.update((block, at_s) for block, at_s in frame.evicted if time_s - at_s < FADE_S)
    view.last_step = view.steps[-1] if view.steps else None
    if count:
        view.load = track.frames[count - 1].report.load
    return view


def row_at(row: RequestRow, time_s: float, admitted: bool) -> RequestRow:
    """A request as it was: what came later is not known yet, nor what no report had told."""
    made = bisect_right(row.token_times_s, time_s)
    first = row.first_token_s is not None and row.first_token_s <= time_s
    state = RequestState.DECODING if first else RequestState.PREFILL if admitted else RequestState.QUEUED
    return replace(
        row,
        state=state,
        cached_tokens=row.cached_tokens if admitted else None,
        admitted_s=row.admitted_s if admitted else None,
        first_token_s=row.first_token_s if first else None,
        finished_s=None,
        token_times_s=row.token_times_s[max(0, made - TAIL) : made],
        output_tokens=made,
        reason=None,
        message="",
    )
