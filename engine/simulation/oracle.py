"""Best possible placement of a burst in hindsight, a lower bound, and regret.

Up to `ENUMERATED` requests every placement is tried (identical requests by count); beyond that a beam in
arrival order, then single moves and swaps. Candidates are ranked on the event-jumping simulator and the
best are confirmed on the per-step one, so a best is always a placement that was really run.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from engine.config import BLOCK_TOKENS
from engine.kv.manager import blocks_for
from engine.kv.prefix import restorable_blocks
from engine.profiling.profile import Profile
from engine.routing.forecast import Job
from engine.simulation.joint import make_lanes, run_together
from engine.simulation.simulate import Simulation
from engine.workloads.presets import Workload

ENUMERATED = 14
BEAM = 64
CONFIRMED = 4  # best candidates per goal that are run step by step
Placement = tuple[int, ...]  # backend's place in the profile, for each request in order of arrival


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a placement leads to, in seconds."""

    makespan_s: float
    mean_e2e_s: float


@dataclass(frozen=True, slots=True)
class Best:
    """The best known placement for each goal; `proven` when every placement was tried."""

    makespan_s: float
    makespan_placement: Placement
    mean_e2e_s: float
    mean_e2e_placement: Placement
    proven: bool
    tried: int
    lower_bound_s: float  # no placement clears the burst sooner


class Yardstick:
    """Evaluates placements of one workload on one profile."""

    def __init__(self, profile: Profile, workload: Workload, slots: dict[str, int] | None = None) -> None:
        self.profile = profile
        self.workload = workload
        self.slots = {b.name: (slots or {}).get(b.name, b.slots) for b in profile.backends}
        self._models = [(b.steps, self.slots[b.name], b.token_budget, b.kv_blocks) for b in profile.backends]
        requests = workload.requests
        self._shared = _shared_blocks([r.prompt for r in requests], workload.seeding)
        self._same = _groups([(r.prompt[:64], len(r.prompt), r.output_tokens) for r in requests])

    def jobs(self, placement: Placement) -> list[list[Job]]:
        """Each backend's requests; a prefix shared with an earlier one there counts as cached."""
        out: list[list[Job]] = [[] for _ in self._models]
        for i, place in enumerate(placement):
            planned = self.workload.requests[i]
            prompt, new = len(planned.prompt), planned.output_tokens
            blocks = max(
                (self._shared[i][j] for j in range(-1, i) if j < 0 or placement[j] == place), default=0
            )
            cached = min(blocks, restorable_blocks(prompt)) * BLOCK_TOKENS
            need = blocks_for(prompt + planned.sampling.max_new_tokens) - cached // BLOCK_TOKENS
            out[place].append(Job(i, prompt - cached, new, cached, need, planned.offset_s))
        return out

    def quick(self, placement: Placement) -> Outcome:
        """On the event-jumping simulator. A shorter placement stands for the first requests alone."""
        lanes = make_lanes(self._models, self.jobs(placement))
        run_together(lanes)
        ends = {key: end for lane in lanes for key, end in lane.finish.items()}
        e2e = [ends[i] - self.workload.requests[i].offset_s for i in range(len(placement))]
        return Outcome(max(ends.values()) - self.workload.requests[0].offset_s, sum(e2e) / len(e2e))

    def exact(self, placement: Placement, given_s: Mapping[int, float] | None = None) -> Outcome:
        """On the per-step simulator, through the real scheduler and cache; `given_s` as there."""
        simulation = Simulation(self.profile, "forced-fastest", self.slots)
        result = simulation.run(self.workload, placement, given_s=given_s)
        return outcome_of(result)

    def best(self) -> Best:
        """Search, then confirm."""
        count = len(self.workload.requests)
        places = range(len(self._models))
        proven = count <= ENUMERATED
        placements: Iterable[Placement] = self._all(count) if proven else self._searched(count, list(places))
        scored = [(self.quick(p), p) for p in placements]
        out: dict[str, tuple[float, Placement]] = {}
        goals: dict[str, Callable[[Outcome], float]] = {
            "makespan": lambda o: o.makespan_s,
            "mean": lambda o: o.mean_e2e_s,
        }
        for name, goal in goals.items():
            top = heapq.nsmallest(CONFIRMED, scored, key=lambda pair: goal(pair[0]))
            out[name] = min((goal(self.exact(p)), p) for _, p in top)
        return Best(
            out["makespan"][0],
            out["makespan"][1],
            out["mean"][0],
            out["mean"][1],
            proven,
            len(scored),
            self.lower_bound_s(),
        )

    def _all(self, count: int) -> Iterable[Placement]:
        """Every placement; of requests that are alike, only how many go where matters, earliest first."""
        for placement in itertools.product(range(len(self._models)), repeat=count):
            alike = all(
                placement[a] <= placement[b]
                for members in self._same
                if self._interchangeable(members)
                for a, b in itertools.pairwise(members)
            )
            if alike:
                yield placement

    def _interchangeable(self, members: Sequence[int]) -> bool:
        """Alike and arriving together: which one goes where makes no difference."""
        offsets = {self.workload.requests[i].offset_s for i in members}
        return len(members) > 1 and len(offsets) == 1

    def _searched(self, count: int, places: list[int]) -> list[Placement]:
        """Beam in arrival order on both goals, then single moves and swaps of the best."""
        beam: list[Placement] = [()]
        for _ in range(count):
            grown = [(*p, k) for p in beam for k in places]
            if len(grown) > BEAM:
                scored = [(self.quick(p), p) for p in grown]
                half = BEAM // 2
                by_makespan = heapq.nsmallest(half, scored, key=lambda s: s[0].makespan_s)
                by_mean = heapq.nsmallest(half, scored, key=lambda s: s[0].mean_e2e_s)
                grown = list(dict.fromkeys(p for _, p in (*by_makespan, *by_mean)))
            beam = grown
        found = dict.fromkeys(beam)
        for goal in ("makespan_s", "mean_e2e_s"):
            value = attrgetter(goal)
            best = min(beam, key=lambda p, value=value: value(self.quick(p)))  # type: ignore[misc]
            found.update(dict.fromkeys(self._climb(best, places, goal)))
        return list(found)

    def _climb(self, start: Placement, places: list[int], goal: str) -> list[Placement]:
        """First improvement over moves of one request and swaps of neighbours, at most two rounds."""
        best, score, seen = start, getattr(self.quick(start), goal), [start]
        for _ in range(2):
            improved = False
            for i in range(len(best)):
                options = [(*best[:i], k, *best[i + 1 :]) for k in places if k != best[i]]
                if i + 1 < len(best) and best[i] != best[i + 1]:
                    options.append((*best[:i], best[i + 1], best[i], *best[i + 2 :]))
                for option in options:
                    value = getattr(self.quick(option), goal)
                    if value < score - 1e-9:
                        best, score, improved = option, value, True
                        seen.append(option)
            if not improved:
                break
        return seen

    def lower_bound_s(self) -> float:
        """No placement clears the burst before this: a fractional split of least work between two backends.

        The least a request can cost a backend is its share of the cheapest steps there are: prefill at the
        full rate and decode at the lowest cost per token over all row counts. With arrivals it is the
        maximum over suffixes: what arrives from some moment on cannot be done before it arrived.
        """
        requests = self.workload.requests
        start = requests[0].offset_s
        costs = [
            [self._least_s(place, i) for i in range(len(requests))] for place in range(len(self._models))
        ]
        bound = 0.0
        for first in range(len(requests)):
            since = requests[first].offset_s - start
            bound = max(bound, since + _fractional([row[first:] for row in costs]))
        return bound

    def _least_s(self, place: int, request: int) -> float:
        planned = self.workload.requests[request]
        model, slots = self._models[place][0], self._models[place][1]
        prompt = len(planned.prompt)
        blocks = max((self._shared[request][j] for j in range(-1, request)), default=0)
        prefill = prompt - min(blocks, restorable_blocks(prompt)) * BLOCK_TOKENS
        per_token = min(model.rows_s(n) / n for n in range(1, slots + 1))
        return model.prefill_s * prefill + per_token * (planned.output_tokens - 1)


def _fractional(costs: Sequence[Sequence[float]]) -> float:
    """Least time to clear divisible work on one or two machines: sort by cost ratio, split one request."""
    if len(costs) != 2:
        # Each machine alone with its share of everything: a bound for any number of them.
        return 1.0 / sum(1.0 / sum(row) for row in costs if sum(row) > 0)
    order = sorted(range(len(costs[0])), key=lambda i: costs[0][i] / costs[1][i])
    left, right = 0.0, sum(costs[1])
    for i in order:
        # The next request moves from the second machine to the first until both take equally long.
        if left + costs[0][i] >= right - costs[1][i]:
            share = (right - left) / (costs[0][i] + costs[1][i])
            return left + max(0.0, share) * costs[0][i]
        left, right = left + costs[0][i], right - costs[1][i]
    return left


def _shared_blocks(
    prompts: Sequence[Sequence[int]], seeding: Sequence[Sequence[int]]
) -> list[dict[int, int]]:
    """For each prompt: whole blocks in common with each earlier one, and under -1 with the seeding."""
    out = []
    for i, prompt in enumerate(prompts):
        row = {j: _common(prompt, prompts[j]) for j in range(i)}
        row[-1] = max((_common(prompt, seed) for seed in seeding), default=0)
        out.append(row)
    return out


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    most, whole = min(len(a), len(b)) // BLOCK_TOKENS, 0
    while whole < most:
        start = whole * BLOCK_TOKENS
        if a[start : start + BLOCK_TOKENS] != b[start : start + BLOCK_TOKENS]:
            break
        whole += 1
    return whole


def _groups(keys: Sequence[object]) -> list[list[int]]:
    found: dict[object, list[int]] = {}
    for i, key in enumerate(keys):
        found.setdefault(key, []).append(i)
    return list(found.values())


def outcome_of(result: dict[str, object]) -> Outcome:
    """Makespan and mean E2E of a burst's JSON."""
    requests = result["requests"]
    assert isinstance(requests, list)
    e2e = [float(r["e2e_s"]) for r in requests]
    makespan = result["makespan_s"]
    assert isinstance(makespan, float)
    return Outcome(makespan, sum(e2e) / len(e2e))
