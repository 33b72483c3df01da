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
    house.core.moves.targets[request_id] = CPU
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
    assert done is not None and done.backend == GPU and not house.core.moves.targets
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


def test_a_move_whose_target_died_goes_back_and_is_no_move(house: House) -> None:
    _, waits = waiting_fifth(house)
    ask(house, waits)
    house.hand("cpu").die()
    house.pump("gpu")
    receipts = [e.receipt for e in house.events if isinstance(e, RequestRouted)]
    assert [(r.chosen, r.moved_from) for r in receipts if r.request_id == waits] == [(GPU, None)] * 2
    assert "Moved" not in receipts[-1].reason
    assert house.reasons([waits]) == [LENGTH]
    house.check()


@pytest.mark.parametrize("begun", [False, True])
def test_what_left_a_stalled_backend_and_comes_back_lives_on(house: House, begun: bool) -> None:
    """The backend's late answer to the first leave-taking is not the end of the second stay."""
    request_id = house.chat("there and back", new=3)
    if begun:
        house.hand("gpu").begin()
    house.wait_s(6)  # nothing was heard: it goes to the cpu
    house.hand("gpu").step()
    house.hand("cpu").die()  # both is seen in one turn: the gpu lives again, and gets it back
    house.pump("gpu")
    receipts = [e.receipt for e in house.events if isinstance(e, RequestRouted)]
    assert [(r.chosen, r.moved_from) for r in receipts] == [(GPU, None), (CPU, GPU), (GPU, CPU)]
    done = house.done(request_id)
    assert done is not None and (done.reason, done.output_tokens) == (LENGTH, 3)
    house.check()
