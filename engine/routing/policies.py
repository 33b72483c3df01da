"""Routing policies: which backend gets one whole request. Pure functions of what the router knows.

`isolated-rates` is the baseline: tokens still to compute over rates measured in isolation, prefill and
decode apart. It prices no batching; that is what makes it a baseline.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import UnknownNameError
from engine.receipt import Candidate

PLAIN_POLICIES = ("isolated-rates", "round-robin", "least-requests")
BATCHED_POLICIES = ("total-delay", "batched-clear")  # need a step-time model of every backend
ALIASES = ("forced-fastest", "forced-slowest")


@dataclass(frozen=True, slots=True)
class Choice:
    """What a policy decided: one score per candidate (lowest wins) and the winner's place."""

    chosen: int
    scores: tuple[float | None, ...]
    unit: str  # "s", "requests" or "" where the policy weighs nothing


def policy_names(backends: Sequence[str]) -> list[str]:
    """Every policy that makes sense for these backends."""
    return [*BATCHED_POLICIES, *PLAIN_POLICIES, *(f"forced-{name}" for name in backends), *ALIASES]


def check_policy(name: str, backends: Sequence[str]) -> None:
    known = policy_names(backends)
    if name not in known:
        raise UnknownNameError("policy", name, known)


def isolated_s(prefill_tokens: int, decode_tokens: int, prefill_rate: float, decode_rate: float) -> float:
    """Seconds until so much work is done at these rates (tok/s), one token after the other."""
    return prefill_tokens / prefill_rate + decode_tokens / decode_rate


def choose(policy: str, candidates: Sequence[Candidate], fastest_first: Sequence[int], turn: int) -> Choice:
    """Apply a policy. `candidates` are alive backends; `fastest_first` orders their places by speed.

    `turn` counts requests so far, for round-robin. Ties go to the faster backend.
    """
    places = range(len(candidates))
    speed = {place: i for i, place in enumerate(fastest_first)}
    if policy == "isolated-rates":
        prices = [c.score_s for c in candidates]
        known = [p for p in places if prices[p] is not None]
        if len(known) < len(prices):
            return choose("least-requests", candidates, fastest_first, turn)
        best = min(places, key=lambda p: (prices[p], speed[p]))
        return Choice(best, tuple(prices), "s")
    if policy == "least-requests":
        counts = tuple(float(c.active + c.queued) for c in candidates)
        return Choice(min(places, key=lambda p: (counts[p], speed[p])), counts, "requests")
    if policy == "round-robin":
        return Choice(turn % len(candidates), tuple(None for _ in places), "")
    if policy == "forced-fastest":
        return Choice(fastest_first[0], tuple(None for _ in places), "")
    if policy == "forced-slowest":
        return Choice(fastest_first[-1], tuple(None for _ in places), "")
    wanted = policy.removeprefix("forced-")
    # A forced backend that is dead leaves the request to whoever is alive.
    place = next((p for p in places if candidates[p].backend == wanted), fastest_first[0])
    return Choice(place, tuple(None for _ in places), "")
