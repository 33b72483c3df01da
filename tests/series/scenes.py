"""Small events by hand, and the golden receipts of the baseline rule."""

from app.series.board import Board
from engine.events import (
    BackendInfo,
    BackendState,
    BackendStatus,
    BurstStarted,
    Event,
    RequestArrived,
    RequestDone,
    RequestRouted,
    StepDone,
)
from engine.receipt import Candidate, Receipt
from engine.request import BackendName, FinishReason, RequestId, RequestTimings
from engine.step_report import Admission, BackendLoad, RequestLoad, StepReport

CPU, GPU = BackendName("cpu"), BackendName("gpu")
RATES = {CPU: (73.0, 45.0), GPU: (2551.0, 293.0)}
LABELS = {"cpu": "CPU", "gpu": "GPU"}


def info(name: BackendName) -> BackendInfo:
    label, rank = LABELS[name], 1 if name == CPU else 0
    return BackendInfo(
        name, label, name, rank, "emulated", "Apple M2", True, 4, 384, 1, 1, "Q4_1", *RATES[name]
    )


def candidate(
    name: BackendName, active: int = 0, queued: int = 0, active_decode: int = 0, **changes: object
) -> Candidate:
    """20 tokens to prefill and 128 to decode, and as much for each queued request."""
    prefill, decode = RATES[name]
    score = 20 * (1 + queued) / prefill + (128 * (1 + queued) + active_decode) / decode
    values: dict[str, object] = {
        "score": score, "score_s": score, "active": active, "queued": queued, "cached_tokens": 496,
        "own_prefill_tokens": 20, "own_decode_tokens": 128, "active_prefill_tokens": 0,
        "active_decode_tokens": active_decode, "queued_prefill_tokens": 20 * queued,
        "queued_decode_tokens": 128 * queued, "prefill_rate": prefill, "decode_rate": decode,
    }  # fmt: skip
    return Candidate(name, **(values | changes))


def receipt(
    chosen: BackendName,
    *candidates: Candidate,
    request_id: int = 1,
    policy: str = "isolated-rates",
    unit: str = "s",
    moved_from: BackendName | None = None,
) -> Receipt:
    return Receipt(
        RequestId(request_id), policy, unit, chosen, "Because of the policy.", 0.35, candidates, moved_from
    )


REQUEST_7 = receipt(GPU, candidate(CPU), candidate(GPU, 4, 2, 496), request_id=7)
REQUEST_8 = receipt(CPU, candidate(CPU), candidate(GPU, 4, 3, 488), request_id=8)


def board(*events: Event) -> Board:
    out = Board()
    out.apply([BackendStatus(info(name), BackendState.READY) for name in (CPU, GPU)])
    out.apply(list(events))
    return out


def arrive(number: int, at_s: float = 0.0, run_id: str | None = "run") -> RequestArrived:
    return RequestArrived(RequestId(number), number, run_id, 516, 128, at_s)


def burst(count: int, start_s: float = 0.0) -> BurstStarted:
    offsets = tuple(i * 0.05 for i in range(count))
    return BurstStarted("run", "seed-warm-8", "isolated-rates", count, start_s, offsets)


def step(
    backend: BackendName, started_s: float, finished_s: float, *ids: int, admit: tuple[int, ...] = (),
    unfinished: bool = True,
) -> StepDone:  # fmt: skip
    """One token for each of `ids`."""
    loads = tuple(RequestLoad(RequestId(i), 0, 516, 496, 0, 1, 127) for i in ids) if unfinished else ()
    admitted = tuple(Admission(RequestId(i), 0, 496, started_s) for i in admit)
    tokens = tuple((RequestId(i), 7) for i in ids)
    return StepDone(
        StepReport(
            backend,
            0,
            started_s,
            finished_s,
            len(ids),
            tokens=tokens,
            admitted=admitted,
            load=BackendLoad(loads),
        )
    )


def done(
    number: int, submitted_s: float, finished_s: float, reason: FinishReason = FinishReason.LENGTH
) -> RequestDone:
    timings = RequestTimings(submitted_s, submitted_s, submitted_s + 0.1, finished_s)
    return RequestDone(RequestId(number), CPU, reason, 516, 496, 128, timings)


def warm_burst(count: int) -> Board:
    """`count` requests for the GPU; the CPU stands idle."""
    events: list[Event] = [burst(count)]
    for i in range(count):
        gpu = candidate(GPU, min(i, 4), max(0, i - 4), min(i, 4) * 124)
        events.append(arrive(i + 1, i * 0.05))
        events.append(RequestRouted(receipt(GPU, candidate(CPU), gpu, request_id=i + 1)))
    return board(*events)
