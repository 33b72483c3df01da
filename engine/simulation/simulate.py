"""The same scheduler, KV manager and router on a virtual clock: bursts in milliseconds of real time."""

import heapq
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count

from engine.backend import Backend, DropUnowned, Submit, Withdraw
from engine.clock import VirtualClock
from engine.events import BackendInfo
from engine.execution.profile_runner import ProfileRunner
from engine.kv.manager import KvManager, check_pool
from engine.ledger import Ledger, result_json
from engine.profiling.profile import BackendProfile, Profile
from engine.receipt import Receipt
from engine.request import GREEDY, BackendName, Request, RequestId
from engine.routing.length import LengthEstimator
from engine.routing.router import Pace, Router
from engine.scheduling.batch import Batch
from engine.scheduling.policies import make_policy
from engine.scheduling.scheduler import Scheduler
from engine.simulation.noise import StepNoise
from engine.weights import DEFAULT_WEIGHTS, PolicyWeights
from engine.workloads.presets import Workload

CONTEXT_TOKENS = 4096


def fake_tokenise(text: str) -> list[int]:
    """Token ids for simulations: words to numbers, the same in every process."""
    return [sum(ord(c) * (i + 1) * 31 for i, c in enumerate(word)) % 50_000 for word in text.split()]


def info_of(profile: BackendProfile, rank: int, slots: int) -> BackendInfo:
    name = BackendName(profile.name)
    label = profile.name.upper()
    return BackendInfo(
        name,
        label,
        profile.kind,
        rank,
        "emulated",
        profile.device_name,
        True,
        slots,
        profile.kv_blocks,
        profile.block_bytes,
        1,
        "placeholder",
        profile.rates.prefill,
        profile.rates.decode,
    )


class Simulation:
    """One workload on one profile. Events in time order: arrivals and ends of steps."""

    def __init__(
        self,
        profile: Profile,
        policy: str,
        slots: Mapping[str, int] | None = None,
        token_budget: int | None = None,
        scheduling: str = "fcfs",
        kv_blocks: int | None = None,
        lengths: LengthEstimator | None = None,
        noise: StepNoise | None = None,
        weights: PolicyWeights = DEFAULT_WEIGHTS,
    ) -> None:
        self._noise = noise
        self.clock = VirtualClock()
        self.profile = profile
        self.policy = policy
        self.slots = {b.name: (slots or {}).get(b.name, b.slots) for b in profile.backends}
        budgets = {b.name: token_budget or b.token_budget for b in profile.backends}
        self._backends: dict[BackendName, Backend] = {}
        for b in profile.backends:
            kv = KvManager(kv_blocks or b.kv_blocks, salt=b.name)
            scheduler = Scheduler(kv, make_policy(scheduling), self.slots[b.name], budgets[b.name])
            name = BackendName(b.name)
            self._backends[name] = Backend(name, scheduler, ProfileRunner(b), self.clock)
        self.router = Router(policy, [(n, n.upper(), n) for n in self._backends], lengths, weights)
        for b in profile.backends:
            self.router.set_rates(BackendName(b.name), b.rates)
            pace = Pace(b.steps, self.slots[b.name], budgets[b.name])
            self.router.set_pace(BackendName(b.name), pace)
        self.ledger = Ledger()
        self._ids = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()  # ties in time keep the order in which they were planned
        self._running: set[BackendName] = set()
        self._placement: Sequence[int] | None = None
        self._given_s: dict[int, float] = {}  # on the clock; by number of the request

    def infos(self) -> list[BackendInfo]:
        """The backends, in the profile's order."""
        fastest = self.router.fastest_first()
        return [
            info_of(b, fastest.index(BackendName(b.name)), self.slots[b.name]) for b in self.profile.backends
        ]

    def run(
        self,
        workload: Workload,
        placement: Sequence[int] | None = None,
        token_times: bool = False,
        given_s: Mapping[int, float] | None = None,
    ) -> dict[str, object]:
        """Seed the caches, let the arrivals come, run dry; returns the burst's JSON.

        `placement` overrides the policy: for each request, the place of its backend in the profile. With it,
        `given_s` says of the requests (numbers from 1) that came to that backend after their arrival when
        they did, in seconds since the burst began. `token_times` adds when each token came to every request.
        """
        self._placement = placement
        self._seed(workload)
        start_s = self.clock.now_s()
        self._given_s = {number: start_s + at_s for number, at_s in (given_s or {}).items()}
        for number, planned in enumerate(workload.requests, 1):
            request = Request(
                RequestId(next(self._ids)),
                planned.prompt,
                planned.sampling,
                start_s + planned.offset_s,
                planned.tag,
                planned.reply_tokens,
            ).fitted(CONTEXT_TOKENS)
            self._check(request)
            self._at(request.arrival_s, partial(self._arrive, request, number))
        self._drain()
        entries = [e for e in self.ledger.entries.values() if e.run_id is not None]
        return result_json(
            workload.preset,
            self.policy,
            self.infos(),
            entries,
            start_s,
            emulated=True,
            simulated=True,
            extra={
                "profile": self.profile.name,
                "slots": dict(self.slots),
                "weights": str(self.router.weights),
            },
            token_times=token_times,
        )

    def _check(self, request: Request) -> None:
        for backend in self._backends.values():
            check_pool(request, backend.scheduler.kv.pool.num_blocks)

    def _seed(self, workload: Workload) -> None:
        """Every backend drops its unowned blocks and runs the seeding prompts, before the clock starts."""
        for backend in self._backends.values():
            backend.handle(DropUnowned())
            for prompt in workload.seeding:
                request = Request(RequestId(next(self._ids)), prompt, GREEDY_ONE, self.clock.now_s())
                self._check(request)
                self.ledger.open(request, 0, None)
                backend.handle(Submit(request, 0))
            self._begin(backend)
        self._drain()

    def _at(self, time_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_s, next(self._order), action))

    def _drain(self) -> None:
        while self._events:
            time_s, _, action = heapq.heappop(self._events)
            self.clock.advance_to(time_s)
            action()

    def _arrive(self, request: Request, number: int) -> None:
        self.ledger.open(request, number, "simulated")
        given_s = self._given_s.get(number)
        if given_s is not None and given_s > self.clock.now_s():
            self._at(given_s, partial(self._place, request, number))
        else:
            self._place(request, number)

    def _place(self, request: Request, number: int) -> None:
        only = None
        if self._placement is not None:
            only = BackendName(self.profile.backends[self._placement[number - 1]].name)
        self._send(request, self.router.choose(request, self.clock.now_s(), only=only))

    def _send(self, request: Request, receipt: Receipt) -> None:
        self.ledger.route(receipt)
        candidate = receipt.candidate(receipt.chosen)
        backend = self._backends[receipt.chosen]
        backend.handle(Submit(request, candidate.cached_tokens if candidate else 0))
        if backend.name not in self._running:
            self._begin(backend)

    def _begin(self, backend: Backend) -> None:
        batch = backend.begin()
        if not batch.rows:
            report = backend.idle_report()
            if report is not None:
                self.router.observe(report)
            return
        runner = backend.runner
        assert isinstance(runner, ProfileRunner)
        others = bool(self._running - {backend.name})
        now = self.clock.now_s()
        self._running.add(backend.name)
        seconds = runner.seconds(batch, others)
        if self._noise is not None:
            seconds *= self._noise.factor(backend.name)
        end_s = now + seconds
        self._at(end_s, partial(self._end_step, backend, batch, now, others))

    def _end_step(self, backend: Backend, batch: Batch, started_s: float, others: bool) -> None:
        self._running.discard(backend.name)
        ids = backend.runner.run(batch)
        report = backend.finish(batch, ids, started_s, self.clock.now_s(), others)
        self.router.observe(report)
        for entry in self.ledger.apply(report):
            if entry.number:
                self.router.learn(entry.request, len(entry.tokens), entry.reason)
        if report.ended and self._placement is None:
            self._move_heads()
        if backend.name not in self._running:
            self._begin(backend)

    def _move_heads(self) -> None:
        """Something has ended: let the heads of queues move while that helps."""
        while (move := self.router.worthwhile_move(self.clock.now_s())) is not None:
            request_id, source, target = move
            self._backends[source].handle(Withdraw(request_id))
            self.router.withdraw(source, request_id)
            request = self.ledger.entries[request_id].request
            self._send(request, self.router.choose(request, self.clock.now_s(), source, target))


GREEDY_ONE = type(GREEDY)(temperature=0.0, top_p=1.0, max_new_tokens=1, ignore_eos=True)


def simulate(
    profile: Profile,
    workload: Workload,
    policy: str,
    slots: Mapping[str, int] | None = None,
    scheduling: str = "fcfs",
    weights: PolicyWeights = DEFAULT_WEIGHTS,
) -> dict[str, object]:
    """Run one workload on a profile; returns the burst's JSON, marked simulated."""
    return Simulation(profile, policy, slots, scheduling=scheduling, weights=weights).run(workload)
