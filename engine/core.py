"""The engine's one thread, inside: requests, bursts and calibration between router and backends.

Nothing here is thread-safe and nothing needs to be; `engine.engine` hands work in.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection

from engine.backend import Cancel, Submit
from engine.burst import BurstRunner
from engine.calibration import Calibrator
from engine.clock import Clock
from engine.config import EngineConfig
from engine.deaths import backend_died
from engine.errors import PromptError
from engine.events import (
    BackendState,
    Event,
    Foreseen,
    RequestArrived,
    RequestRouted,
    StepDone,
)
from engine.histories import load_lengths, save_lengths
from engine.kv.manager import check_pool
from engine.ledger import Entry, Ledger
from engine.limits import LiveLimits
from engine.measurements import Measurements
from engine.moves import Moves
from engine.replies import Codec, Conversations
from engine.request import (
    BackendName,
    FinishReason,
    Request,
    RequestId,
    RequestState,
    SamplingParams,
)
from engine.routing.router import Router
from engine.stalls import StallWatch
from engine.step_report import StepReport
from engine.supervisor import Supervisor, Unit
from engine.transport import Loaded
from engine.typed import TypedPrompts

_KEPT_ENTRIES = 4_000


class Core:
    """Owns router, ledger, supervisor, replies, the burst and the calibration."""

    def __init__(
        self,
        config: EngineConfig,
        codec: Codec,
        vocabulary: int,
        units: Sequence[Unit],
        clock: Clock,
        publish: Callable[[Event], None],
        ids: "count[int]",
    ) -> None:
        self.config = config
        self.clock = clock
        self.publish = publish
        self.ids = ids
        self.conversations = Conversations(codec)
        self.supervisor = Supervisor(units, clock, publish)
        names = [(u.plan.spec.name, u.info.label, u.plan.salt) for u in units]
        self._model = config.emulate or config.model
        self.router = Router(config.policy, names, load_lengths(self._model), config.weights)
        for name, _, _ in names:
            self.router.remove(name)  # nobody is alive before it has loaded
        self.ledger = Ledger()
        self.typed = TypedPrompts(self)
        self.moves = Moves(self)
        self.limits = LiveLimits(self)
        self.measurements = Measurements(self)
        self.stalls = StallWatch(self)
        self._open: set[RequestId] = set()  # requests of the user that have not ended
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_ids = count()
        self.calibrator = Calibrator(self, vocabulary)
        self.bursts = BurstRunner(self)

    # --- the loop -------------------------------------------------------------------------------------

    def start(self) -> None:
        for name in self.supervisor.units:
            self.supervisor.start(name)

    def turn(self, wake: Connection, longest_s: float = 1.0) -> None:
        """One turn of the loop: wait for something, then take everything that is there."""
        now = self.clock.now_s()
        timeout = min(longest_s, max(0.0, self._timers[0][0] - now)) if self._timers else longest_s
        messages = self.supervisor.poll(wake, timeout)
        self.stalls.look()
        for name, message in messages:
            if message is None:
                backend_died(self, name)
            elif isinstance(message, Loaded):
                self._on_loaded(name)
            else:
                self._on_report(message)
        while self._timers and self._timers[0][0] <= self.clock.now_s():
            heapq.heappop(self._timers)[2]()

    def close(self) -> None:
        """Keep what is worth keeping, then end the backends."""
        self.calibrator.close()
        save_lengths(self._model, self.router.lengths)
        self.supervisor.close()

    @property
    def loading(self) -> bool:
        states = {u.state for u in self.supervisor.units.values()}
        return BackendState.LOADING in states or BackendState.WAITING in states

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time_s, next(self._timer_ids), action))

    def advance(self) -> None:
        """Whatever waits for quiet: calibration first, then a burst."""
        if self.loading:
            return
        busy = bool(self._open or self.typed.held)
        # A burst that waits keeps calibration from beginning what the burst does not need.
        # One that runs keeps it away altogether, also while no request of it is open.
        waiting = self.bursts.waiting
        needed = waiting is not None and self.calibrator.blocks(waiting.policy)
        self.calibrator.advance(busy or (self.bursts.burst is not None and not needed))
        self.bursts.advance(busy)

    # --- backends -------------------------------------------------------------------------------------

    def _on_loaded(self, name: BackendName) -> None:
        self.router.restore(name)
        self.supervisor.set_state(name, BackendState.READY)
        self.measurements.loaded(name)
        self.typed.release()

    def recalibrate(self) -> None:
        """Measure every running backend again as soon as it is quiet."""
        self.calibrator.again()

    def _on_report(self, report: StepReport) -> None:
        report = self.stalls.current(report)
        self.router.observe(report)
        self.calibrator.on_report(report)
        self.bursts.on_report(report)
        ended = self.ledger.apply(report)
        self.publish(StepDone(report))
        self.measurements.on_report(report)
        self.typed.take(report)
        for entry in ended:
            self._ended(entry)
        for request_id in report.withdrawn:
            self.moves.given_up(request_id, report.backend)
        if ended:
            self.moves.look()

    # --- requests -------------------------------------------------------------------------------------

    def submit(
        self,
        request: Request,
        number: int,
        run_id: str | None,
        only: BackendName | None = None,
        refused: str = "",
    ) -> None:
        if not refused:
            try:
                request = self.fitted(request)
            except PromptError as error:
                refused = str(error)
        entry = self.enter(request, number, run_id)
        if refused:
            self.end(entry, FinishReason.ERROR, refused)
        elif not self.router.alive():
            self.end(entry, FinishReason.ERROR, "No backend is running: restart one.")
        else:
            self.route(entry, self.clock.now_s(), only=only)

    def fitted(self, request: Request) -> Request:
        """`Request.fitted` to the context; raises `PromptError` as well where the pool is too small."""
        request = request.fitted(self.config.context_tokens)
        check_pool(request, min(u.plan.spec.kv_blocks for u in self.supervisor.units.values()))
        return request

    def enter(self, request: Request, number: int, run_id: str | None) -> Entry:
        entry = self.ledger.open(request, number, run_id)
        self._open.add(request.id)
        self.publish(
            RequestArrived(
                request.id,
                number,
                run_id,
                request.prompt_tokens,
                request.sampling.max_new_tokens,
                request.arrival_s,
            )
        )
        return entry

    def route(
        self,
        entry: Entry,
        now_s: float,
        moved_from: BackendName | None = None,
        only: BackendName | None = None,
    ) -> None:
        receipt = self.router.choose(entry.request, now_s, moved_from, only)
        if moved_from is None and entry.backend not in ("", receipt.chosen):
            receipt = replace(receipt, moved_from=entry.backend)
        self.ledger.route(receipt)
        self.publish(RequestRouted(receipt))
        candidate = receipt.candidate(receipt.chosen)
        estimate = candidate.cached_tokens if candidate else 0
        self.supervisor.send(receipt.chosen, Submit(entry.request, estimate))
        self._renew(now_s)

    def _renew(self, now_s: float) -> None:
        """Somebody arrived: everybody's forecast has changed."""
        ends = self.router.foresee(now_s)
        since = {
            i: now_s - e.request.arrival_s for i in ends if (e := self.ledger.entries.get(i)) and e.number
        }
        if since:
            self.publish(Foreseen(tuple((i, waited + ends[i]) for i, waited in since.items())))

    def cancel(self, request_id: RequestId) -> None:
        if request_id in self.typed.held:
            self.typed.drop(request_id, FinishReason.ABORT)
            return
        entry = self.ledger.entries.get(request_id)
        if entry is not None and entry.state is not RequestState.FINISHED:
            self.supervisor.send(entry.backend, Cancel(request_id))
            self.router.forget(entry.backend, request_id)
            self.end(entry, FinishReason.ABORT)

    def cancel_all(self) -> None:
        """Stop the burst and every request of the user."""
        self._timers = []
        for request_id in sorted(self._open | set(self.typed.held)):
            self.cancel(request_id)
        self.bursts.abort()

    def end(self, entry: Entry, reason: FinishReason, message: str = "") -> None:
        """End an entry from this side, before (or instead of) its backend."""
        self.ledger.close(entry, reason, self.clock.now_s(), message)
        self._ended(entry)

    def _ended(self, entry: Entry) -> None:
        request_id = entry.request.id
        self.moves.forget(request_id)
        self.typed.ended(entry)
        if entry.reason is FinishReason.CONTEXT and not entry.message:
            entry.message = (
                f"The context of {self.config.context_tokens:,} tokens is full: start a new conversation "
                "or load the model with a longer context."
            )
        if entry.number:
            self._open.discard(request_id)
            self.publish(entry.done())
            self.router.learn(entry.request, len(entry.tokens), entry.reason)
            self.calibrator.rest()
        else:
            del self.ledger.entries[request_id]
            self.calibrator.ended(entry)
        self.bursts.ended(request_id)
        self.ledger.forget(_KEPT_ENTRIES)

    def internal(self, name: BackendName, prompt: tuple[int, ...], sampling: SamplingParams) -> RequestId:
        """Run a request of our own (seeding, calibration) on one backend, past the router."""
        request = Request(RequestId(next(self.ids)), prompt, sampling, self.clock.now_s())
        entry = self.ledger.open(request, 0, None)
        entry.backend = name
        self.supervisor.send(name, Submit(request, 0))
        return request.id
