"""A backend that stalls while another works: shown, not chosen, and what waits there moves."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.backend import Cancel, Submit
from engine.deaths import restart_backend
from engine.events import BackendState, Notice, RequestRouted
from engine.request import FinishReason, RequestId
from tests.engine.by_hand import House

LENGTH, ERROR = FinishReason.LENGTH, FinishReason.ERROR
Make = Callable[..., House]


@pytest.fixture
def make(house_of: Make) -> Make:
    return house_of


def chosen(house: House, request_id: RequestId) -> list[str]:
    """Every backend that it was routed to, in order."""
    return [
        e.receipt.chosen
        for e in house.events
        if isinstance(e, RequestRouted) and e.receipt.request_id == request_id
    ]


def stalled(make: Make, **more: Any) -> tuple[House, list[RequestId], list[RequestId]]:
    """Four requests that have begun and three that wait, and then no step for six seconds."""
    house = make(**more)
    started = [house.chat(f"prompt {i}", new=50) for i in range(4)]
    waiting = [house.chat(f"waiting {i}", new=5) for i in range(3)]
    house.hand("gpu").step()
    house.turn()
    house.wait_s(6)
    assert house.state("gpu") is BackendState.STALLED
    return house, started, waiting


def test_it_is_shown_and_what_waits_there_moves(make: Make) -> None:
    house, started, waiting = stalled(make)
    assert house.message("gpu") == "No step for 5 s"
    said = [e.message for e in house.events if isinstance(e, Notice) and e.level == "warning"]
    assert said == [
        "The GPU backend has stalled: no step for 5 s. Requests 5 to 7 moved. "
        "Others go elsewhere until it steps again."
    ]
    assert [chosen(house, i) for i in waiting] == [["gpu", "cpu"]] * 3
    assert [chosen(house, i) for i in started] == [["gpu"]] * 4
    house.pump("cpu")
    assert house.reasons(waiting) == [LENGTH] * 3
    assert house.reasons(started) == [None] * 4, "what has begun waits for it"


def test_what_has_begun_goes_on_when_it_steps_again(make: Make) -> None:
    house, started, waiting = stalled(make)
    house.pump()
    assert house.state("gpu") is BackendState.READY
    assert house.reasons([*started, *waiting]) == [LENGTH] * 7
    assert {house.done(i).backend for i in waiting} == {"cpu"}  # type: ignore[union-attr]
    assert {house.done(i).backend for i in started} == {"gpu"}  # type: ignore[union-attr]
    house.check()


def test_it_is_not_chosen_until_it_steps_again(make: Make) -> None:
    house, _, _ = stalled(make)
    late = house.chat("late")
    asked_for = house.chat("asked for", only="gpu")
    assert chosen(house, late) == chosen(house, asked_for) == ["cpu"]
    house.hand("gpu").step()
    house.turn()
    assert house.state("gpu") is BackendState.READY
    assert chosen(house, house.chat("later")) == ["gpu"]
    house.pump()
    house.check()


@pytest.mark.parametrize("policy", ["total-delay", "isolated-rates", "least-requests", "round-robin"])
def test_no_policy_chooses_it(make: Make, policy: str) -> None:
    house, _, _ = stalled(make)
    house.core.router.set_policy(policy)
    late = [house.chat(f"late {i}") for i in range(4)]
    assert [chosen(house, i) for i in late] == [["cpu"]] * 4
    house.pump()
    house.check()


def test_one_that_began_in_the_step_that_hangs_lives_once(make: Make) -> None:
    """Its admission was never told, so it moves; what the first backend still computes of it is dropped."""
    house = make()
    request_id = house.chat("hello there", new=6)
    house.turn()
    hand = house.hand("gpu")
    hand.take()
    batch = hand.backend.begin()  # the step that hangs
    house.wait_s(6)
    assert house.state("gpu") is BackendState.STALLED and chosen(house, request_id) == ["gpu", "cpu"]
    house.hand("cpu").step()
    house.turn()
    began_s, ids = house.clock.now_s(), hand.runner.run(batch)
    hand._theirs.send(hand.backend.finish(batch, ids, began_s, house.clock.now_s()))
    house.turn()
    house.pump()
    done = house.done(request_id)
    assert done is not None and (done.reason, done.output_tokens, done.backend) == (LENGTH, 6, "cpu")
    assert [type(c) for c in hand.commands] == [Submit, Cancel]
    house.check()


def test_the_only_backend_keeps_its_requests(make: Make) -> None:
    house = make()
    house.hand("cpu").die()
    house.turn()
    ids = [house.chat(f"prompt {i}", new=5) for i in range(6)]
    house.turn()
    house.wait_s(6)
    assert house.state("gpu") is BackendState.STALLED
    late = house.chat("late")
    house.pump("gpu")
    assert house.reasons([*ids, late]) == [LENGTH] * 7
    house.check()


def test_when_both_stall_the_second_keeps_what_it_has(make: Make) -> None:
    house, started, waiting = stalled(make)
    house.turn()
    house.wait_s(6)
    assert [house.state(n) for n in ("cpu", "gpu")] == [BackendState.STALLED] * 2
    late = house.chat("late")
    assert chosen(house, late) == ["cpu"]
    assert [chosen(house, i) for i in waiting] == [["gpu", "cpu"]] * 3
    house.pump()
    assert house.reasons([*started, *waiting, late]) == [LENGTH] * 8
    house.check()


def test_one_that_dies_of_its_stall_ends_what_had_begun(make: Make) -> None:
    house, started, waiting = stalled(make)
    house.hand("gpu").die()
    house.turn()
    assert house.reasons(started) == [ERROR] * 4
    late = house.chat("late")
    house.pump("cpu")
    assert chosen(house, late) == ["cpu"]
    assert house.reasons([*waiting, late]) == [LENGTH] * 4
    restart_backend(house.core, house.core.router.fastest_first()[0])
    house.hand("gpu").load()
    house.turn()
    assert chosen(house, house.chat("after")) == ["gpu"]
    house.pump()
    house.check()


def test_loading_and_warm_up_are_no_stall(make: Make) -> None:
    house = make(load=False)
    house.hand("cpu").load()
    house.turn()
    house.wait_s(1_000)
    assert house.state("gpu") is BackendState.LOADING
    assert not [e for e in house.events if isinstance(e, Notice) and "stalled" in e.message]


@pytest.mark.parametrize(("step_s", "patience_s"), [(0.1, 5.0), (2.0, 20.0)])
def test_it_is_ten_times_the_slowest_step_and_at_least_five_seconds(
    make: Make, step_s: float, patience_s: float
) -> None:
    house = make(decode_s=step_s)
    house.chat("hello there", new=50)
    for _ in range(3):
        house.hand("gpu").step()
        house.turn()
    house.wait_s(patience_s - 0.5)
    assert house.state("gpu") is BackendState.READY
    house.wait_s(1.0)
    assert house.state("gpu") is BackendState.STALLED
    house.pump()
