"""What a backend's panel draws, worked out from the board: slot rows, queue chips, rates. No painting."""

from statistics import median

from app.series.board import BackendView, Board, RequestRow
from app.widgets.queue import Chip
from app.widgets.slots import SlotRow
from engine.request import RequestState
from engine.step_report import StepReport

RATE_WINDOW_S = 1.0
RATE_TOKENS = 16
BUSY_WINDOW_S = 2.0
STEPS_WATCHED = 60
VARYING = 4.0  # the slow steps take this many times the usual one: worth a word


def slot_rows(board: Board, view: BackendView, now_s: float) -> list[SlotRow]:
    """One row a slot, free ones included."""
    rows = [SlotRow()] * view.info.slots
    varying = step_variation(view)
    warning = f"steps vary {varying:.0f}×" if varying else ""
    for load in view.load.requests:
        row = board.requests.get(load.request_id)
        if not load.active or load.slot >= len(rows) or row is None:
            continue
        rows[load.slot] = SlotRow(
            str(row.number),
            load.prompt_tokens,
            load.cached_tokens,
            load.prompt_tokens - load.prefill_remaining,
            load.generated,
            load.generated + load.decode_remaining,
            _request_rate(row, view, now_s) if load.generated else _prefill_rate(view.last_step),
            warning=warning if load.generated else "",
        )
    return rows


def chips(board: Board, view: BackendView, now_s: float) -> list[Chip]:
    """Requests that wait for this backend, in its order; those on their way to it come last."""
    out, seen = [], set()
    for load in view.load.requests:
        seen.add(load.request_id)
        row = board.requests.get(load.request_id)
        if not load.active and row is not None:
            waits_s = max(0.0, now_s - row.arrival_s)
            out.append(
                Chip(str(row.number), waits_s, load.prompt_tokens, load.cached_tokens, load.stale_estimate)
            )
    for row in board.requests.values():
        known = row.backend == view.info.name and row.state is RequestState.QUEUED
        if known and row.request_id not in seen and row.receipt is not None:
            candidate = row.receipt.candidate(view.info.name)
            cached = candidate.cached_tokens if candidate else 0
            out.append(
                Chip(str(row.number), max(0.0, now_s - row.arrival_s), row.prompt_tokens, cached, False)
            )
    return out


def backend_rate(view: BackendView, now_s: float) -> float | None:
    """Tokens per second over the last second of steps; 0 while idle, None before the first step."""
    if not view.steps:
        return None
    last = view.steps[-1]
    if now_s - last.finished_s > max(RATE_WINDOW_S, 3 * last.duration_s):
        return 0.0
    tokens, start_s = 0, last.started_s
    for step in reversed(view.steps):
        if step.finished_s < last.finished_s - RATE_WINDOW_S:
            break
        tokens, start_s = tokens + len(step.tokens), step.started_s
    return tokens / (last.finished_s - start_s) if last.finished_s > start_s else None


def busy_share(view: BackendView, now_s: float) -> float | None:
    """The part of the last two seconds in which it computed, 0 to 1; None before the first step.

    While something is in its slots the step that runs counts, though no report has told of it yet.
    """
    if not view.steps:
        return None
    since_s = max(now_s - BUSY_WINDOW_S, view.steps[0].started_s)
    busy_s, last_s = 0.0, view.steps[-1].finished_s
    for step in reversed(view.steps):
        if step.finished_s <= since_s:
            break
        busy_s += max(0.0, min(step.finished_s, now_s) - max(step.started_s, since_s))
    if any(load.active for load in view.load.requests):
        busy_s += max(0.0, now_s - max(last_s, since_s))
    return min(1.0, busy_s / (now_s - since_s)) if now_s > since_s else None


def step_variation(view: BackendView) -> float | None:
    """How many times the usual decode step the slowest twentieth takes; None while steps are steady."""
    recent = [view.steps[-i] for i in range(1, min(STEPS_WATCHED, len(view.steps)) + 1)]
    if len(recent) < 20 or any(step.prefill_tokens for step in recent):
        return None
    times = sorted(step.duration_s for step in recent)
    usual, slow = median(times), times[int(len(times) * 0.95)]
    return slow / usual if usual > 0 and slow >= VARYING * usual else None


def _request_rate(row: RequestRow, view: BackendView, now_s: float) -> float | None:
    times = row.token_times_s[-RATE_TOKENS - 1 :]
    if len(times) < 2 or times[-1] <= times[0]:
        return None
    return (len(times) - 1) / (times[-1] - times[0])


def _prefill_rate(step: StepReport | None) -> float | None:
    if step is None or not step.prefill_tokens or step.duration_s <= 0:
        return None
    return step.prefill_tokens / step.duration_s
