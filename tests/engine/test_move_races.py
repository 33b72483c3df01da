"""Whatever meets a move, every request lives one life: random orders of everything that can happen.

A backend takes its commands, begins a step, ends it; the core looks at what came; requests arrive, are asked
back, cancelled; backends die, stall and are restarted; slots change. In between anything may happen.
"""

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from engine.backend import Withdraw
from engine.deaths import restart_backend
from engine.events import BackendState, RequestArrived, RequestDone, RequestRouted, StepDone
from engine.request import BackendName, FinishReason, RequestId, RequestState
from tests.engine.by_hand import House

NAMES = CPU, GPU = BackendName("cpu"), BackendName("gpu")
EVERY_DAY = ("chat", "chat", "chat", "turn", "turn", "begin", "end", "step", "step", "ask", "ask", "cancel")
TROUBLE = ("die", "restart", "silence", "slots", "cancel all")


class Race:
    """A house in which `act` does one thing, and `check` finds what may never be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, policy: str, kv_blocks: int) -> None:
        self.house = House(monkeypatch, policy=policy, kv_blocks=kv_blocks, slots=2)
        self.core = self.house.core
        self.news: dict[RequestId, int] = {}
        self.cancelled: set[RequestId] = set()

    def act(self, action: str, data: st.DataObject) -> None:
        house, core = self.house, self.core
        name = data.draw(st.sampled_from(NAMES))
        match action:
            case "chat":
                new = data.draw(st.integers(1, 6))
                words = data.draw(
                    st.sampled_from(["hello", "a prompt of several words " * 6, f"no {len(self.news)}"])
                )
                only = data.draw(st.sampled_from([None, None, None, "cpu", "gpu"]))
                self.news[house.chat(words, new, only, ignore_eos=True)] = new
            case "turn":
                house.turn()
            case "begin" | "end" | "step" if self.lives(name):
                getattr(house.hand(name), action)()
            case "ask":
                self._ask(data)
            case "cancel" if self.news:
                core.cancel(victim := data.draw(st.sampled_from(sorted(self.news))))
                self.cancelled.add(victim)
            case "cancel all":
                core.cancel_all()
                self.cancelled.update(self.news)
            case "die" if self.lives(name):
                house.hand(name).die()
            case "restart":
                self.restart(name)
            case "silence":
                house.wait_s(6)
            case "slots":
                core.limits.hold(name, data.draw(st.integers(1, 2)))

    def _ask(self, data: st.DataObject) -> None:
        """As the core asks when something has ended, but of anybody: it may run or be over by then."""
        open_ids = [
            i for i, e in self.core.ledger.entries.items() if e.state is RequestState.QUEUED and e.number
        ]
        if not open_ids:
            return
        request_id = data.draw(st.sampled_from(open_ids))
        source = self.core.ledger.entries[request_id].backend
        if source not in self.core.router.alive() or request_id in self.core.moves.targets:
            return
        self.core.moves.targets[request_id] = next(n for n in NAMES if n != source)
        self.core.supervisor.send(source, Withdraw(request_id))

    def lives(self, name: BackendName) -> bool:
        return name in self.house.alive() and not self.house.hand(name).dead

    def restart(self, name: BackendName) -> None:
        restart_backend(self.core, name)
        if self.house.state(name) is BackendState.LOADING and self.lives(name):
            self.house.hand(name).load()
            self.house.turn()

    def finish(self) -> None:
        """Everybody who can goes on to the end."""
        self.house.turn()
        for name in self.house.alive():
            self.house.hand(name).end()
        self.house.pump(until=None)
        self.house.turn()

    def check(self) -> None:
        house, core = self.house, self.core
        house.check()
        arrived = [e.request_id for e in house.events if isinstance(e, RequestArrived)]
        assert sorted(arrived) == sorted(self.news)
        for request_id in arrived:
            self._check_request(request_id)
        for name in house.alive():
            kv = house.hand(name).backend.scheduler.kv
            assert kv.available == kv.pool.num_blocks, "a block is held by nobody"
            mirror = core.router._mirrors[name]
            assert not mirror.sent and not +mirror.in_flight, "the router waits for what is over"
        assert not core.moves.targets and not core._open and not core.typed.replies

    def _check_request(self, request_id: RequestId) -> None:
        events = self.house.events
        done = self.house.done(request_id)
        assert done is not None
        receipts = [e.receipt for e in events if isinstance(e, RequestRouted)]
        mine = [r for r in receipts if r.request_id == request_id]
        path = [r.chosen for r in mine]
        came = [None, *(a if a != b else None for a, b in pairwise(path))][: len(path)]
        assert [r.moved_from for r in mine] == came, "a receipt tells another way than it went"
        entry = self.core.ledger.entries[request_id]
        assert done.backend == (path[-1] if path else "") and entry.receipt == (mine[-1] if mine else None)
        ran = self._ran(request_id)
        assert len(entry.tokens) == done.output_tokens <= self.news[request_id]
        if done.reason is FinishReason.LENGTH:
            # What a backend that stalled had begun is thrown away when it comes back there.
            assert done.output_tokens == self.news[request_id] <= ran[done.backend]
        elif done.reason is FinishReason.ABORT:
            assert request_id in self.cancelled
        else:
            assert done.reason is FinishReason.ERROR and "backend" in done.message

    def _ran(self, request_id: RequestId) -> dict[str, int]:
        """Tokens that each backend computed for it, as the core was told."""
        out: dict[str, int] = defaultdict(int)
        for event in self.house.events:
            if isinstance(event, StepDone):
                out[event.report.backend] += sum(i == request_id for i, _ in event.report.tokens)
        return out


def race(data: st.DataObject, actions: tuple[str, ...], then: Callable[[Race], None]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        policy = data.draw(st.sampled_from(["forced-gpu", "forced-gpu", "total-delay"]))
        it = Race(monkeypatch, policy, data.draw(st.sampled_from([12, 40])))
        try:
            for action in data.draw(st.lists(st.sampled_from(actions), min_size=5, max_size=60)):
                it.act(action, data)
            it.finish()
            then(it)
        finally:
            it.core.calibrator.close()
            it.core.supervisor.close(0.0)


@settings(max_examples=100, phases=[Phase.generate])
@given(st.data())
def test_moves_meet_starts_ends_and_cancels(data: st.DataObject) -> None:
    """Nobody dies: everything is answered, and nothing is computed on two backends."""

    def then(it: Race) -> None:
        it.check()
        for request_id in it.news:
            assert sum(count > 0 for count in it._ran(request_id).values()) <= 1, "it ran on two backends"
            done = it.house.done(request_id)
            assert done is not None and done.reason is not FinishReason.ERROR

    race(data, EVERY_DAY, then)


@settings(max_examples=100, phases=[Phase.generate])
@given(st.data())
def test_moves_meet_deaths_stalls_and_changed_slots(data: st.DataObject) -> None:
    race(data, EVERY_DAY + TROUBLE, Race.check)


def test_races_really_move_requests() -> None:
    """The tests above would be happy if nothing ever moved."""
    moved = [0]

    @settings(max_examples=30, phases=[Phase.generate])
    @given(st.data())
    def count(data: st.DataObject) -> None:
        def then(it: Race) -> None:
            receipts = [e.receipt for e in it.house.events if isinstance(e, RequestRouted)]
            ended = {e.request_id for e in it.house.events if isinstance(e, RequestDone)}
            moved[0] += sum(r.moved_from is not None and r.request_id in ended for r in receipts)

        race(data, EVERY_DAY, then)

    count()
    assert moved[0] > 10
