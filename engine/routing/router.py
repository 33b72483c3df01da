"""The router: one decision a request, from what the backends last published. It asks nobody.

For each backend it keeps the last load, a mirror of the prefix index (hashes only), and the requests it
has sent that no published load has shown yet: those count as queued.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from engine.kv.prefix import extend_chain, restorable_blocks, root_hash
from engine.profiling.profile import Rates
from engine.receipt import Receipt
from engine.request import BackendName, FinishReason, Request, RequestId
from engine.routing.correction import PriceCheck
from engine.routing.forecast import both_busy_s, forecast, on_the_wall
from engine.routing.length import LengthEstimator, Remaining
from engine.routing.mirror import Mirror, Sent, job_of
from engine.routing.mirror import Pace as Pace
from engine.routing.policies import BATCHED_POLICIES, Choice, check_policy, choose, policy_names
from engine.routing.pricing import Outlook, clears_first, cost_s, priced, prices, total_delay
from engine.routing.receipt import move_reason, reason_of
from engine.step_report import StepReport
from engine.weights import DEFAULT_WEIGHTS, PolicyWeights

MOVING_POLICY = "total-delay"  # baselines never move a request


class Router:
    """Pure state: reports and requests come in as arguments, receipts go out."""

    def __init__(
        self,
        policy: str,
        backends: Sequence[tuple[BackendName, str, str]],
        lengths: LengthEstimator | None = None,
        weights: PolicyWeights = DEFAULT_WEIGHTS,
    ) -> None:
        """`backends`: (name, label for people, salt of its prefix hashes)."""
        self.lengths = lengths or LengthEstimator()
        self._mirrors = {name: Mirror(name, label, root_hash(salt), None) for name, label, salt in backends}
        check_policy(policy, list(self._mirrors))
        self.policy = policy
        self.weights = weights
        self._turn = 0

    # --- what it is told ------------------------------------------------------------------------------

    def policies(self) -> list[str]:
        return policy_names(list(self._mirrors))

    def set_policy(self, policy: str) -> None:
        check_policy(policy, list(self._mirrors))
        self.policy = policy
        self._turn = 0

    def set_weights(self, weights: PolicyWeights) -> None:
        """What `total-delay` weighs from the next decision on. Raises `ConfigError`."""
        weights.validate()
        self.weights = weights

    def set_rates(self, name: BackendName, rates: Rates | None) -> None:
        self._mirrors[name].rates = rates

    def set_pace(self, name: BackendName, pace: Pace | None) -> None:
        """The step-time model that the batched policies price this backend with."""
        self._mirrors[name].pace = pace

    def observe(self, report: StepReport) -> None:
        """Take a step's load and the changes of the prefix index."""
        mirror = self._mirrors[report.backend]
        assert report.sequence == mirror.sequence + 1, "a report was lost between backend and router"
        mirror.sequence = report.sequence
        if mirror.pace is not None and (report.decode_rows or report.prefill_tokens):
            busy = report.other_busy
            if busy is None:
                busy = any(
                    r.active for m in self._mirrors.values() if m is not mirror for r in m.load.requests
                )
            mirror.check.step(report, mirror.pace.steps, busy)
        mirror.load, mirror.published_s = report.load, report.finished_s
        mirror.hashes.difference_update(report.hashes_removed)
        mirror.hashes.update(report.hashes_added)
        for ending in report.ended:
            mirror.drop(ending.request_id)
        for request_id in report.withdrawn:
            mirror.drop(request_id)

    def learn(self, request: Request, length: int, reason: FinishReason | None) -> None:
        """A request ended with `length` tokens: replies like it are estimated from it."""
        if not request.sampling.ignore_eos and length:
            self.lengths.observe(request, length, reason is not FinishReason.STOP)
            # Builds the estimates anew here, where nobody waits, and not within the next decision.
            self.lengths.remaining(request)

    def remove(self, name: BackendName) -> None:
        """The backend is gone: no candidate, nothing cached, nothing outstanding."""
        mirror = self._mirrors[name]
        mirror.alive = False
        mirror.empty()

    def restore(self, name: BackendName) -> None:
        """The backend runs (again), empty."""
        self.remove(name)
        self._mirrors[name].alive = True

    def set_stalled(self, name: BackendName, stalled: bool) -> None:
        """A backend that has stalled is no candidate; what it holds and caches stays known."""
        self._mirrors[name].alive = not stalled

    def forget(self, name: BackendName, request_id: RequestId) -> None:
        """The request was cancelled before the backend reported it."""
        self._mirrors[name].drop(request_id)

    def check(self, name: BackendName) -> PriceCheck | None:
        """How the step-time model does lately; None where there is no model."""
        mirror = self._mirrors[name]
        return mirror.check if mirror.pace is not None else None

    def alive(self) -> list[BackendName]:
        return [m.name for m in self._mirrors.values() if m.alive]

    def fastest_first(self) -> list[BackendName]:
        """Alive or not, fastest calibrated first; the uncalibrated keep their order behind them."""

        def speed(name: BackendName) -> float:
            rates = self._mirrors[name].rates
            return rates.isolated_s if rates else float("inf")

        return sorted(self._mirrors, key=speed)

    # --- what it decides ------------------------------------------------------------------------------

    def choose(
        self,
        request: Request,
        now_s: float,
        moved_from: BackendName | None = None,
        only: BackendName | None = None,
    ) -> Receipt:
        """Pick a backend, book the request on it, and say why. `only` is a user's own choice.

        `moved_from` is a backend that died before the request began, or one that gave it up for a move:
        the receipt then compares with having stayed at the head of that queue.
        """
        mirrors = [m for m in self._mirrors.values() if m.alive]
        assert mirrors, "choose() without a backend"
        moves = moved_from is not None and self._mirrors[moved_from].alive
        chains = [m.opening(request) for m in mirrors]
        candidates = [m.candidate(request, c) for m, c in zip(mirrors, chains, strict=True)]
        order = [mirrors.index(self._mirrors[n]) for n in self.fastest_first() if self._mirrors[n].alive]
        policy = f"forced-{only}" if only else self.policy
        outlooks = self._outlooks(mirrors, request, chains, now_s, moved_from if moves else None)
        table = None
        if outlooks is not None:
            # Every policy's receipt says what the forecast foresees; only the batched ones decide by it.
            table = prices(outlooks)
        used = policy
        if policy == "total-delay" and outlooks is not None and table is not None:
            scores: tuple[float | None, ...] = tuple(cost_s(p, self.weights) for p in table)
            choice = Choice(total_delay(outlooks, table, order[0], weights=self.weights), scores, "s")
        elif policy == "batched-clear" and table is not None:
            choice = Choice(clears_first(table, order), tuple(p.clear_s for p in table), "s")
        else:
            used = "isolated-rates" if policy in BATCHED_POLICIES else policy
            choice = choose(used, candidates, order, self._turn)
            if used == "isolated-rates" and choice.unit == "requests":
                used = "least-requests"
        if moves and table is not None:
            scores = tuple(cost_s(p, self.weights) for p in table)
            used, choice = MOVING_POLICY, replace(choice, scores=scores, unit="s")
        self._turn += 1
        if outlooks is None or table is None:
            candidates = [replace(c, score=s) for c, s in zip(candidates, choice.scores, strict=True)]
        else:
            home = None
            if used == MOVING_POLICY:
                home = next(i for i, m in enumerate(mirrors) if m.name == moved_from) if moves else order[0]
            candidates = priced(candidates, choice.scores, outlooks, table, home, self.weights)
        chosen, mirror = candidates[choice.chosen], mirrors[choice.chosen]
        others = [c for i, c in enumerate(candidates) if i != choice.chosen]
        labels: dict[str, str] = {m.name: m.label for m in mirrors}
        reason = reason_of(policy, used, chosen, others, labels)
        if moved_from is not None and moves:
            stayed = next((c for c in candidates if c.backend == moved_from), None)
            reason = move_reason(chosen, stayed, labels)
        elif moved_from is not None:
            gone = self._mirrors[moved_from].label
            reason = f"The {gone} stopped before it began; the {labels[chosen.backend]} takes it."
        whole = restorable_blocks(request.prompt_tokens)
        chain = extend_chain(chains[choice.chosen], mirror.root, request.prompt, whole)
        first_s = min(now_s, request.arrival_s) if moves else now_s
        stays = moves or (only is not None and moved_from is None)
        coming = mirror.coming_tokens(chain)
        mirror.book(Sent(request, chain, chosen.cached_tokens, coming, now_s, first_s, stays))
        return Receipt(
            request.id,
            used,
            choice.unit,
            chosen.backend,
            reason,
            now_s,
            tuple(candidates),
            moved_from,
            self.weights if used == MOVING_POLICY else None,
        )

    def worthwhile_move(self, now_s: float) -> tuple[RequestId, BackendName, BackendName] | None:
        """(request, where it waits, where it should go): the head of a queue that is better off elsewhere.

        Ask when something has ended. Only the default policy moves requests, each at most once, and the
        backend where it waits has the last word: see `withdraw`.
        """
        if self.policy != MOVING_POLICY or not self.weights.moves:
            return None
        mirrors = [m for m in self._mirrors.values() if m.alive]
        fastest = next(i for n in self.fastest_first() for i, m in enumerate(mirrors) if m.name == n)
        for place, source in enumerate(mirrors):
            head = source.head()
            if head is None or len(mirrors) < 2:
                continue
            chains = [m.opening(head.request) for m in mirrors]
            outlooks = self._outlooks(mirrors, head.request, chains, now_s, source.name)
            if outlooks is None:
                return None
            target = total_delay(outlooks, prices(outlooks), place, fastest, self.weights)
            if target != place:
                head.stays = True  # asked for; a refusal means that it has begun
                return head.request.id, source.name, mirrors[target].name
        return None

    def withdraw(self, name: BackendName, request_id: RequestId) -> None:
        """The backend has given up a request that it had not begun."""
        self._mirrors[name].drop(request_id)

    def _outlooks(
        self,
        mirrors: Sequence[Mirror],
        request: Request,
        chains: Sequence[list[bytes]],
        now_s: float,
        waits_on: BackendName | None = None,
    ) -> list[Outlook] | None:
        """Each backend's work, and the request as the next one there; None where step times are not known.

        On `waits_on` it is the head of the queue, elsewhere it would be the last.
        """
        # Asked once for each outstanding request: without the oracle, the estimator itself will do.
        left = self._left if self.lengths.kind == "oracle" else self.lengths.remaining
        out = []
        for mirror, chain in zip(mirrors, chains, strict=True):
            if mirror.pace is None:
                return None
            work = mirror.work(now_s, left, request.id, self.lengths.edition)
            sent = mirror.sent.get(request.id)
            coming = sent.coming_tokens if sent is not None else mirror.coming_tokens(chain)
            here = mirror.name == waits_on
            ready_s = 0.0 if here else work.since_s
            came_s = now_s if waits_on is None else request.arrival_s
            out.append(
                Outlook(
                    mirror.pace.steps,
                    mirror.pace.slots,
                    mirror.pace.token_budget,
                    work.active,
                    work.queue,
                    mirror.free_blocks,
                    job_of(request, coming, ready_s, left, came_s),
                    max(1, round(left(request, 0).p90)),
                    work.since_s,
                    now_s,
                    mirror.check.factor,
                    mirror.check.error,
                    is_head=here,
                )
            )
        return out

    def foresee(self, now_s: float, truth: bool = False) -> dict[RequestId, float]:
        """Seconds from now until each outstanding request ends, where step times are known.

        With `truth`, workload requests are priced with the length they will have: what is left is the
        error of the step-time model alone.
        """
        known = [(m, m.pace) for m in self._mirrors.values() if m.alive and m.pace is not None]
        casts, since = [], []
        for mirror, pace in known:
            work = mirror.work(now_s, partial(self._left, truth=truth))
            free, factor = mirror.free_blocks, mirror.check.factor
            casts.append(
                forecast(pace.steps, pace.slots, pace.token_budget, work.active, work.queue, free, factor)
            )
            since.append(work.since_s)
        chis = [pace.steps.interference for _, pace in known]
        out: dict[RequestId, float] = {}
        for k, cast in enumerate(casts):
            both = max(
                (both_busy_s(cast, chis[k], o, chis[i]) for i, o in enumerate(casts) if i != k), default=0.0
            )
            for key, end_s in cast.finish_s.items():
                out[RequestId(key)] = on_the_wall(end_s, chis[k], both) - since[k]
        return out

    def _left(self, request: Request, generated: int, truth: bool = False) -> Remaining:
        """Tokens still to come. The truth is looked at for comparison only: by the oracle, or on demand."""
        if request.reply_tokens is not None and (truth or self.lengths.kind == "oracle"):
            exact = float(max(1, request.reply_tokens - generated))
            return Remaining(exact, exact)
        return self.lengths.remaining(request, generated)
