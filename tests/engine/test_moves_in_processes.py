"""Moves between backends in real child processes, which go on computing while the core asks and waits."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import cycle, pairwise

import pytest

from engine.events import BurstDone, Event, RequestArrived, RequestDone, RequestRouted, StepDone
from engine.request import BackendName, FinishReason, RequestId, SamplingParams
from engine.routing.router import Router
from engine.workloads.presets import PlannedRequest, Workload
from engine.workloads.texts import Tokenise
from tests.engine.test_processes import Watched
from tests.engine.watched import check_life, id_of

COUNT, NEW = 24, 32
SAMPLING = SamplingParams(temperature=0.0, top_p=1.0, max_new_tokens=NEW, ignore_eos=True)


def rush(tokenise: Tokenise) -> Workload:
    """All at nearly the same time; every other one shares the beginning of its prompt."""
    prompts = [(*range(10, 42), *range(50, 50 + i)) if i % 2 else (i + 1,) * 40 for i in range(COUNT)]
    requests = tuple(PlannedRequest(0.001 * i, p, SAMPLING) for i, p in enumerate(prompts))
    return Workload("rush", 0, requests, (), "")


@pytest.fixture
def moving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Whenever something ends, a request that waits is asked back, whether that helps or not: in turn the
    head of the queue, which mostly begins before the question arrives, and the last, which mostly waits."""
    turns = cycle((0, -1))

    def always(router: Router, now_s: float) -> tuple[RequestId, BackendName, BackendName] | None:
        for source in router._mirrors.values():
            sent = [source.sent[load.request_id] for load in source.load.requests if not load.active]
            if waiting := [one for one in sent if not one.stays]:
                asked = waiting[next(turns)]
                asked.stays = True
                target = next(n for n in router.alive() if n != source.name)
                return asked.request.id, source.name, target
        return None

    monkeypatch.setattr(Router, "worthwhile_move", always)
    it = Watched()  # one slot each, and everybody is sent to cpu-1
    it.engine.wait_ready(90)
    yield it
    it.engine.close()


def test_requests_that_move_between_processes_live_one_life(moving: Watched) -> None:
    run_id = moving.engine.run_burst("rush", build=rush)
    first = moving.wait(lambda e: isinstance(e, RequestRouted) and e.receipt.moved_from is not None)
    assert isinstance(first, RequestRouted)
    arrived = [e.request_id for e in moving.events if isinstance(e, RequestArrived)]
    stopped = {first.receipt.request_id, arrived[-1]}  # one on its way, and the last in the queue
    for request_id in stopped:
        moving.engine.cancel(request_id)
    done = moving.wait(lambda e: isinstance(e, BurstDone) and e.run_id == run_id)
    moving.wait(lambda _: all(_empty(moving.events, n) for n in ("cpu-1", "cpu-2")))
    assert isinstance(done, BurstDone) and not done.aborted
    rows = done.result["requests"]
    assert isinstance(rows, list) and len(rows) == COUNT
    ends = {e.request_id: e for e in moving.events if isinstance(e, RequestDone)}
    ran = _computed(moving.events)
    moved = Counter[str]()
    for number, request_id in enumerate(sorted(ends), 1):
        check_life([e for e in moving.events if id_of(e) == request_id])
        receipts = [
            e.receipt
            for e in moving.events
            if isinstance(e, RequestRouted) and e.receipt.request_id == request_id
        ]
        assert [r.moved_from for r in receipts] == [None, *(a.chosen for a, _ in pairwise(receipts))]
        end, row = ends[request_id], rows[number - 1]
        assert row["id"] == number and row["backend"] == end.backend == receipts[-1].chosen
        assert row["receipt"]["moved_from"] == receipts[-1].moved_from
        assert set(ran[request_id]) <= {end.backend}, "it ran on two backends"
        if end.reason is FinishReason.LENGTH:
            assert ran[request_id][end.backend] == end.output_tokens == NEW
        else:
            assert end.reason is FinishReason.ABORT and request_id in stopped
        moved[end.backend] += len(receipts) > 1
    assert len(ends) == COUNT and moved["cpu-2"] >= 5


def _computed(events: list[Event]) -> dict[int, Counter[str]]:
    """Tokens of each request, by the backend that computed them."""
    out: dict[int, Counter[str]] = defaultdict(Counter)
    for event in events:
        if isinstance(event, StepDone):
            for request_id, _ in event.report.tokens:
                out[request_id][event.report.backend] += 1
    return out


def _empty(events: list[Event], name: str) -> bool:
    """Does the backend hold nothing, as it told last?"""
    reports = (e.report for e in reversed(events) if isinstance(e, StepDone) and e.report.backend == name)
    load = next(reports).load
    return not load.requests and load.free_blocks == load.total_blocks
