"""The head of a queue moves to another backend: races with the start, a cancel and a death."""

from collections.abc import Callable

import pytest

from engine.backend import Withdraw
from engine.events import RequestRouted
from engine.request import BackendName, FinishReason, RequestId
from tests.engine.by_hand import House

CPU, GPU = BackendName("cpu"), BackendName("gpu")
LENGTH = FinishReason.LENGTH


@pytest.fixture
def house(house_of: Callable[..., House]) -> House:
    return house_of()


def waiting_fifth(house: House) -> tuple[list[RequestId], RequestId]:
    """Four requests run on the gpu, and one waits for a slot."""
    started = [house.chat(f"prompt {i}", new=30) for i in range(4)]
    waits = house.chat("waits", new=4)
    house.hand("gpu").step()
    house.turn()
    return started, waits


def ask(house: House, request_id: RequestId) -> None:
    house.core._moving[request_id] = CPU
    house.core.supervisor.send(GPU, Withdraw(request_id))


def test_what_waits_moves_and_ends_once(house: House) -> None:
    started, waits = waiting_fifth(house)
    ask(house, waits)
    house.pump()
    assert house.reasons([*started, waits]) == [LENGTH] * 5
    receipts = [e.receipt for e in house.events if isinstance(e, RequestRouted)]
    assert [(r.request_id, r.moved_from, r.chosen) for r in receipts if r.moved_from] == [(waits, GPU, CPU)]
    house.check()


def test_what_has_begun_stays(house: House) -> None:
    started, waits = waiting_fifth(house)
    ask(house, started[0])
    house.pump()
    assert house.reasons([*started, waits]) == [LENGTH] * 5
    done = house.done(started[0])
    assert done is not None and done.backend == GPU and not house.core._moving
    house.check()


def test_a_cancel_on_the_way_ends_it_once(house: House) -> None:
    _, waits = waiting_fifth(house)
    ask(house, waits)
    house.core.cancel(waits)
    house.pump()
    assert house.reasons([waits]) == [FinishReason.ABORT]
    house.check()


@pytest.mark.parametrize("dead", ["cpu", "gpu"])
def test_a_death_on_the_way_loses_nothing(house: House, dead: str) -> None:
    _, waits = waiting_fifth(house)
    ask(house, waits)
    house.hand(dead).die()
    house.turn()
    house.pump(*house.alive())
    done = house.done(waits)
    assert done is not None and done.reason is LENGTH and done.backend != dead
    house.check()
