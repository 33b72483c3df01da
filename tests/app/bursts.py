"""Boards to look at: the golden scene, a long burst, one request, nothing."""

from fake_engine import CPU, GPU, golden_receipts, golden_scene, setup_events

from app.series.board import Board
from engine.events import BurstStarted, Event, RequestArrived, RequestDone, RequestRouted, StepDone
from engine.receipt import Candidate, Receipt
from engine.request import BackendName, FinishReason, RequestId, RequestTimings
from engine.step_report import Admission, BackendLoad, RequestLoad, StepReport

START_S = 1_000.0


def golden() -> Board:
    board = Board()
    board.apply(golden_scene(START_S))
    return board


def nothing() -> Board:
    board = Board()
    board.apply(setup_events())
    return board


def single() -> Board:
    """One typed prompt, decoding."""
    board = nothing()
    receipt = golden_receipts(START_S)[0]
    board.apply(
        [
            RequestArrived(receipt.request_id, 1, None, 516, 128, START_S),
            RequestRouted(receipt),
            step(GPU, 0.0, 0.03, [receipt.request_id], admit=True),
            *(step(GPU, 0.03 + i * 0.01, 0.04 + i * 0.01, [receipt.request_id]) for i in range(40)),
        ]
    )
    return board


def long_burst(count: int = 48, every: int = 7, now_s: float = 20.0) -> Board:
    """`count` requests 50 ms apart, each seventh to the CPU from the eighth on; some have finished."""
    board = nothing()
    offsets = tuple(i * 0.05 for i in range(count))
    events: list[Event] = [
        BurstStarted("long", f"seed-warm-{count}", "isolated-rates", count, START_S, offsets)
    ]
    placed = {CPU: 0, GPU: 0}
    for i in range(count):
        at_s = START_S + offsets[i]
        both = tuple(_candidate(name, placed[name]) for name in (CPU, GPU))
        chosen = min(both, key=lambda c: c.score or 0.0).backend
        placed[chosen] += 1
        request_id = RequestId(500 + i)
        events.append(RequestArrived(request_id, i + 1, "long", 516, 128, at_s))
        events.append(
            RequestRouted(Receipt(request_id, "isolated-rates", "s", chosen, "Lowest.", at_s, both))
        )
    board.apply(events)
    board.apply(_lives(board, now_s))
    return board


def _candidate(name: BackendName, before: int) -> Candidate:
    prefill, decode = (73.0, 45.0) if name == CPU else (2551.0, 293.0)
    active, queued = min(before, 4), max(0, before - 4)
    score = 20 * (1 + queued) / prefill + (128 * (1 + queued) + 124 * active) / decode
    return Candidate(
        name, score, score, active, queued, 496, 20, 128, 0, 124 * active, 20 * queued, 128 * queued,
        prefill, decode,
    )  # fmt: skip


def _lives(board: Board, now_s: float) -> list[Event]:
    """Two out of three requests have run, in order; a third of the run ones still decodes."""
    events: list[Event] = []
    rows = board.run_rows()
    ran = rows[: max(1, len(rows) * 2 // 3)]
    for index, row in enumerate(ran):
        begin = max(row.arrival_s - START_S, now_s * index / (len(ran) + 8))
        done = index < len(ran) - 4
        backend = BackendName(row.backend or GPU)
        events.append(step(backend, begin, begin + 0.3, [row.request_id], admit=True))
        events += [
            step(backend, begin + 0.3 + t * 0.1, begin + 0.4 + t * 0.1, [row.request_id]) for t in range(12)
        ]
        if done:
            times = (START_S + begin + 0.3, START_S + begin + 1.5)
            timings = RequestTimings(row.arrival_s, START_S + begin, *times)
            events.append(RequestDone(row.request_id, backend, FinishReason.LENGTH, 516, 496, 128, timings))
    return events


def step(
    backend: BackendName, begin_s: float, end_s: float, ids: list[RequestId], admit: bool = False
) -> StepDone:
    start, end = START_S + begin_s, START_S + end_s
    admitted = tuple(Admission(i, 0, 496, start) for i in ids) if admit else ()
    load = BackendLoad(tuple(RequestLoad(i, 0, 516, 496, 0, 1, 127) for i in ids))
    tokens = tuple((i, 7) for i in ids)
    return StepDone(StepReport(backend, 0, start, end, len(ids), tokens=tokens, admitted=admitted, load=load))
