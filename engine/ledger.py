"""The ledger: every request's life, from reports, and the results that `burst` and `simulate` print.

The real engine and the simulator keep the same ledger, so their numbers mean the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.events import BackendInfo, RequestDone
from engine.receipt import Receipt
from engine.request import BackendName, FinishReason, Request, RequestId, RequestState, RequestTimings
from engine.routing.receipt import receipt_json
from engine.step_report import StepReport


@dataclass(slots=True)
class Entry:
    """One request: what was asked, what the router said, what happened."""

    request: Request
    number: int
    run_id: str | None
    receipt: Receipt | None = None
    backend: BackendName = BackendName("")
    state: RequestState = RequestState.QUEUED
    cached_tokens: int = 0
    admitted_s: float | None = None
    started: bool = False  # its first prefill step has run: it cannot move any more
    token_times_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    finished_s: float | None = None
    reason: FinishReason | None = None
    wasted_tokens: int = 0
    message: str = ""

    @property
    def timings(self) -> RequestTimings:
        return RequestTimings(
            self.request.arrival_s,
            self.admitted_s,
            self.token_times_s[0] if self.token_times_s else None,
            self.finished_s,
            tuple(self.token_times_s),
        )

    def is_at(self, backend: BackendName) -> bool:
        """False for a backend that it was moved away from, whatever that one still does with it."""
        return self.backend in (backend, "")

    def done(self) -> RequestDone:
        """The event that tells its end."""
        assert self.reason is not None
        return RequestDone(
            self.request.id,
            self.backend,
            self.reason,
            self.request.prompt_tokens,
            self.cached_tokens,
            len(self.tokens),
            self.timings,
            self.wasted_tokens,
            self.message,
        )


class Ledger:
    """All entries by request id, in order of arrival."""

    def __init__(self) -> None:
        self.entries: dict[RequestId, Entry] = {}

    def open(self, request: Request, number: int, run_id: str | None) -> Entry:
        entry = self.entries[request.id] = Entry(request, number, run_id)
        return entry

    def route(self, receipt: Receipt) -> None:
        entry = self.entries[receipt.request_id]
        entry.receipt, entry.backend = receipt, receipt.chosen

    def apply(self, report: StepReport) -> list[Entry]:
        """Book one step; returns the entries that ended with it."""
        for admission in report.admitted:
            # A request that was cancelled meanwhile has ended, whatever its backend still did with it.
            if entry := self._unfinished(admission.request_id, report):
                entry.admitted_s, entry.cached_tokens = admission.time_s, admission.cached_tokens
                entry.state, entry.started = RequestState.PREFILL, True
        for request_id, cached in report.cache_hits:
            if entry := self._unfinished(request_id, report):
                entry.cached_tokens = cached
        for request_id, token in report.tokens:
            entry = self.entries.get(request_id)
            if entry is None or not entry.is_at(report.backend):
                continue
            if entry.state is RequestState.FINISHED:
                entry.wasted_tokens += 1  # computed past a stop string or a cancel
                continue
            entry.state = RequestState.DECODING
            entry.tokens.append(token)
            entry.token_times_s.append(report.finished_s)
        ended = []
        for ending in report.ended:
            entry = self.entries.get(ending.request_id)
            if entry is not None and self._unfinished(ending.request_id, report):
                self.close(entry, ending.reason, report.finished_s)
                ended.append(entry)
        return ended

    def _unfinished(self, request_id: RequestId, report: StepReport) -> Entry | None:
        """The entry that a report speaks of, where it may still change it."""
        entry = self.entries.get(request_id)
        if entry is None or entry.state is RequestState.FINISHED or not entry.is_at(report.backend):
            return None
        return entry

    @staticmethod
    def close(entry: Entry, reason: FinishReason, time_s: float, message: str = "") -> None:
        """The request is over. Its E2E ends with its last token, or now when it was cut short."""
        entry.state, entry.reason, entry.message = RequestState.FINISHED, reason, message
        whole = reason in (FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTEXT)
        entry.finished_s = entry.token_times_s[-1] if whole and entry.token_times_s else time_s

    def forget(self, keep: int) -> None:
        """Drop the oldest finished entries beyond `keep`."""
        spare = len(self.entries) - keep
        if spare > 0:
            old = [i for i, e in self.entries.items() if e.state is RequestState.FINISHED][:spare]
            for request_id in old:
                del self.entries[request_id]


def result_json(
    preset: str,
    policy: str,
    backends: Sequence[BackendInfo],
    entries: Iterable[Entry],
    start_s: float,
    *,
    emulated: bool,
    simulated: bool,
    extra: dict[str, object] | None = None,
    foreseen: Mapping[RequestId, tuple[float, float]] | None = None,
    token_times: bool = False,
) -> dict[str, object]:
    """The JSON object of a burst. Times are seconds; `arrival_s` counts from the first submission.

    `routed_s` counts from the request's own submission: when it was sent to the backend where it ran, which
    is late where it had waited on another one first.

    `foreseen` holds each request's E2E as forecast at the last arrival: with estimated and with true lengths.
    `token_times` adds `token_times_s`: when each token came, counted from the request's submission.
    """
    rows = list(entries)
    finished = [e.finished_s for e in rows if e.finished_s is not None]
    makespan = max(finished) - start_s if finished else None
    output = sum(len(e.tokens) for e in rows)
    requests: list[dict[str, object]] = []
    for e in rows:
        t = e.timings
        renewed, model_only = (foreseen or {}).get(e.request.id, (None, None))
        requests.append(
            {
                "id": e.number,
                "backend": e.backend,
                "arrival_s": round(e.request.arrival_s - start_s, 6),
                "routed_s": rounded(_routed_s(e)),
                "prompt_tokens": e.request.prompt_tokens,
                "cached_tokens": e.cached_tokens,
                "output_tokens": len(e.tokens),
                "queue_s": rounded(t.queue_s),
                "ttft_s": rounded(t.ttft_s),
                "tpot_s": rounded(t.tpot_s),
                "e2e_s": rounded(t.e2e_s),
                "finish_reason": e.reason,
                "predicted_s": rounded(_predicted_e2e_s(e)),
                "predicted_last_arrival_s": rounded(renewed),
                "predicted_true_lengths_s": rounded(model_only),
                "receipt": receipt_json(e.receipt) if e.receipt else None,
            }
        )
        if token_times:
            submitted_s = e.request.arrival_s
            requests[-1]["token_times_s"] = [round(s - submitted_s, 6) for s in e.token_times_s]
    counts = {b.name: sum(1 for e in rows if e.backend == b.name) for b in backends}
    return {
        "preset": preset,
        "policy": policy,
        "emulated": emulated,
        "simulated": simulated,
        "backends": [
            {
                "name": b.name,
                "kind": b.kind,
                "device": b.device_name,
                "format": b.format,
                "threads": b.threads,
                "slots": b.slots,
                "rates": {"prefill": b.prefill_rate, "decode": b.decode_rate},
            }
            for b in backends
        ],
        "makespan_s": rounded(makespan),
        "output_throughput": rounded(output / makespan) if makespan else None,
        "requests_per_backend": counts,
        **(extra or {}),
        "requests": requests,
    }


def _predicted_e2e_s(entry: Entry) -> float | None:
    """E2E as the last receipt foresees it; one that moved had waited already."""
    waited_s = _routed_s(entry)
    if entry.receipt is None or entry.receipt.predicted_s is None or waited_s is None:
        return None
    return entry.receipt.predicted_s + waited_s


def _routed_s(entry: Entry) -> float | None:
    """Seconds from its submission to its last receipt; None where it was never routed."""
    return None if entry.receipt is None else max(0.0, entry.receipt.time_s - entry.request.arrival_s)


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
