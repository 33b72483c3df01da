"""Scheduling policies: who is admitted first, and how active prefills share a step's token budget."""

from collections.abc import Sequence
from typing import Protocol

from engine.config import BLOCK_TOKENS
from engine.errors import UnknownNameError


class Prefilling(Protocol):
    """What a policy may look at."""

    @property
    def order(self) -> int: ...  # order of arrival at this backend

    @property
    def prefill_remaining(self) -> int: ...


class SchedulingPolicy:
    """First come, first served: in order of arrival, each prefill takes all of the budget it can use."""

    def order_waiting(self, waiting: Sequence[Prefilling]) -> list[int]:
        """Indices of `waiting` in order of admission. A request without room blocks those behind it."""
        return sorted(range(len(waiting)), key=lambda i: waiting[i].order)

    def order_prefills(self, active: Sequence[Prefilling], step: int) -> list[int]:
        """Indices of `active` prefills in the order they draw on the budget."""
        return sorted(range(len(active)), key=lambda i: active[i].order)

    def share(self, budget: int, prefills: int) -> int:
        """Most tokens one prefill may take of `budget` while `prefills` of them want some."""
        return budget


class ShortestPrefillFirst(SchedulingPolicy):
    """The least remaining prefill goes first, ties by arrival. Long cold prompts wait for short ones."""

    def order_waiting(self, waiting: Sequence[Prefilling]) -> list[int]:
        return sorted(range(len(waiting)), key=lambda i: (waiting[i].prefill_remaining, waiting[i].order))

    def order_prefills(self, active: Sequence[Prefilling], step: int) -> list[int]:
        return sorted(range(len(active)), key=lambda i: (active[i].prefill_remaining, active[i].order))


class RoundRobin(SchedulingPolicy):
    """Admission by arrival; active prefills share each step evenly and take turns at going first."""

    def order_prefills(self, active: Sequence[Prefilling], step: int) -> list[int]:
        by_arrival = super().order_prefills(active, step)
        turn = step % max(1, len(by_arrival))
        return by_arrival[turn:] + by_arrival[:turn]

    def share(self, budget: int, prefills: int) -> int:
        even = budget // max(1, prefills)
        # Whole blocks become reusable at once; below one block there is nothing to round.
        return even // BLOCK_TOKENS * BLOCK_TOKENS if even >= BLOCK_TOKENS else max(1, even)


POLICIES: dict[str, type[SchedulingPolicy]] = {
    "fcfs": SchedulingPolicy,
    "shortest-prefill-first": ShortestPrefillFirst,
    "round-robin": RoundRobin,
}


def make_policy(name: str) -> SchedulingPolicy:
    if name not in POLICIES:
        raise UnknownNameError("scheduling policy", name, list(POLICIES))
    return POLICIES[name]()
