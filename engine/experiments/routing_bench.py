"""How long the router takes, and how well it foresees: measured on loads that look like a busy hour.

Decisions are timed on this machine. Forecasts are compared with the per-step simulator, that runs the real
scheduler and cache on the same step times; lengths are known, so what is left is the forecast's own error.
"""

import pickle
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from engine.experiments.percentiles import percentile
from engine.kv.manager import blocks_for
from engine.profiling.profile import Profile
from engine.request import BackendName, FinishReason, Request, RequestId, SamplingParams
from engine.routing.length import KEPT, LengthEstimator
from engine.routing.router import Pace, Router
from engine.simulation.simulate import Simulation
from engine.step_report import BackendLoad, RequestLoad, StepReport
from engine.workloads.presets import PlannedRequest, Workload

AIM_DECISION_S, AIM_MEAN, AIM_P95 = 1e-3, 0.02, 0.08
OUTSTANDING = 64
_BUDGET = 256  # of every reply
_SPREAD_S = 2.0  # arrivals of a load fall within so long
_NEGLIGIBLE_S = 0.02  # what ends within that is foreseen to a step, and its relative error says nothing


@dataclass(frozen=True, slots=True)
class DecisionTimes:
    """Seconds of one choice, request hashing and receipt included."""

    profile: str
    outstanding: int
    decisions: int
    median_s: float
    p95_s: float
    after_end: bool  # a reply ended before each: its class and all replies together are estimated anew

    @property
    def good(self) -> bool:
        return self.median_s <= AIM_DECISION_S

    @property
    def good_p95(self) -> bool:
        return self.p95_s <= AIM_DECISION_S


@dataclass(frozen=True, slots=True)
class ForecastErrors:
    """|foreseen / simulated - 1| of the time from the forecast to each request's end, over all loads."""

    profile: str
    loads: int
    requests: int
    mean: float
    p95: float
    bias: float  # mean of foreseen / simulated - 1: below 0, the forecast is too hopeful

    @property
    def good(self) -> bool:
        return self.mean <= AIM_MEAN and self.p95 <= AIM_P95


def decision_times(
    profile: Profile,
    decisions: int = 200,
    outstanding: int = OUTSTANDING,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    after_end: bool = False,
) -> DecisionTimes:
    """Time `total-delay` with `outstanding` requests, an equal share on each backend, slots full.

    Before each decision every backend publishes its load anew, as with a step: nothing can be kept from
    one decision to the next. With `after_end` the router has also just learned how long a reply became.
    """
    rng, replies = random.Random(seed), random.Random(f"{seed}:replies")
    router, loads = _busy(profile, outstanding, rng)
    published = pickle.dumps(loads)
    taken = []
    for i in range(decisions):
        request = _request(outstanding + i, rng)
        for name, load in pickle.loads(published).items():
            router.observe(StepReport(name, i + 1, 0.9, 1.0, load=load))
        if after_end:
            router.learn(request, replies.randint(8, _BUDGET), FinishReason.STOP)
        begin = clock()
        receipt = router.choose(request, 1.0)
        taken.append(clock() - begin)
        router.forget(receipt.chosen, request.id)
    median, p95 = percentile(taken, 50), percentile(taken, 95)
    assert median is not None and p95 is not None
    return DecisionTimes(profile.name, outstanding, decisions, median, p95, after_end)


def busy_router(profile: Profile, outstanding: int, rng: random.Random) -> Router:
    """A router with so many requests outstanding, as the backends would have published them."""
    return _busy(profile, outstanding, rng)[0]


def _busy(
    profile: Profile, outstanding: int, rng: random.Random
) -> tuple[Router, dict[BackendName, BackendLoad]]:
    """Such a router, and what the backends published."""
    names = [BackendName(b.name) for b in profile.backends]
    lengths = LengthEstimator()
    for i in range(KEPT):  # a history as long as one gets
        lengths.observe(_request(-i, rng), rng.randint(8, _BUDGET), censored=False)
    router = Router("total-delay", [(n, n.upper(), n) for n in names], lengths)
    for b, name in zip(profile.backends, names, strict=True):
        router.set_rates(name, b.rates)
        router.set_pace(name, Pace(b.steps, b.slots, b.token_budget))
    loads: dict[BackendName, list[RequestLoad]] = {n: [] for n in names}
    for i in range(outstanding):
        name = names[i % len(names)]
        request = _request(i, rng)
        router.choose(request, 0.0, only=name)
        slots, place = profile.backends[i % len(names)].slots, len(loads[name])
        active = place < slots
        generated = rng.randrange(1, 128) if active else 0
        loads[name].append(
            RequestLoad(
                request.id,
                place if active else -1,
                request.prompt_tokens,
                0,
                0 if active else request.prompt_tokens,
                generated,
                _BUDGET - generated,
            )
        )
    published = {}
    for b, name in zip(profile.backends, names, strict=True):
        held = sum(blocks_for(r.prompt_tokens + _BUDGET) for r in loads[name] if r.active)
        load = BackendLoad(tuple(loads[name]), max(0, b.kv_blocks - held), b.kv_blocks)
        published[name] = load
        router.observe(StepReport(name, 0, 0.9, 1.0, load=load))
    return router, published


def _request(number: int, rng: random.Random) -> Request:
    prompt = tuple(rng.randrange(50_000) for _ in range(rng.randint(16, 512)))
    return Request(RequestId(number), prompt, _sampling(), 0.0, "load")


def _sampling() -> SamplingParams:
    return SamplingParams(temperature=0.0, top_p=1.0, max_new_tokens=_BUDGET)


class _Foreseeing(Simulation):
    """A simulation that asks for everybody's end once the last request has been routed."""

    def __init__(self, profile: Profile, last: int) -> None:
        super().__init__(profile, "round-robin")
        self._last = last
        self.asked_s = 0.0
        self.foreseen: dict[RequestId, float] = {}

    def _arrive(self, request: Request, number: int) -> None:
        super()._arrive(request, number)
        if number == self._last:
            self.asked_s = self.clock.now_s()
            self.foreseen = self.router.foresee(self.asked_s, truth=True)


def forecast_errors(
    profile: Profile,
    loads: int = 200,
    seed: int = 0,
    on_load: Callable[[int], None] = lambda done: None,
) -> ForecastErrors:
    """Compare on random loads: 2 to 64 requests on random backends, some with a prefix in common."""
    strays: list[float] = []
    for number in range(loads):
        strays += _strays(profile, random.Random(f"{seed}:{number}"))
        on_load(number + 1)
    errors = [abs(s) for s in strays]
    p95 = percentile(errors, 95)
    assert p95 is not None
    mean = sum(errors) / len(errors)
    return ForecastErrors(profile.name, loads, len(errors), mean, p95, sum(strays) / len(errors))


def _strays(profile: Profile, rng: random.Random) -> list[float]:
    workload = random_load(rng)
    places = [rng.randrange(len(profile.backends)) for _ in workload.requests]
    simulation = _Foreseeing(profile, len(workload.requests))
    simulation.run(workload, places)
    out = []
    for request_id, left_s in simulation.foreseen.items():
        finished_s = simulation.ledger.entries[request_id].finished_s
        assert finished_s is not None
        true_s = finished_s - simulation.asked_s
        if true_s > _NEGLIGIBLE_S:
            out.append(left_s / true_s - 1)
    return out


def random_load(rng: random.Random) -> Workload:
    """2 to 64 requests within two seconds: short and long prompts and replies, a third of a family."""
    family = tuple(rng.randrange(50_000) for _ in range(rng.randrange(64, 512)))
    requests = []
    for offset_s in sorted(rng.uniform(0.0, _SPREAD_S) for _ in range(rng.randint(2, OUTSTANDING))):
        own = tuple(rng.randrange(50_000) for _ in range(rng.randint(16, 512)))
        prompt = family + own if rng.random() < 1 / 3 else own
        reply = rng.randint(8, _BUDGET)
        requests.append(PlannedRequest(round(offset_s, 6), prompt, _sampling(), "", reply))
    return Workload("random load", 0, tuple(requests), (family,), "")
