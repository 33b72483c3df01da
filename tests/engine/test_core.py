"""Deaths, stalls, late cancels and prompts that come too early, step by step."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.backend import Cancel
from engine.deaths import restart_backend
from engine.events import BackendState, Notice, RequestRouted, StepDone
from engine.request import FinishReason
from tests.engine.by_hand import House

LENGTH, ERROR, ABORT, STOP = (
    FinishReason.LENGTH,
    FinishReason.ERROR,
    FinishReason.ABORT,
    FinishReason.STOP,
)
Make = Callable[..., House]


@pytest.fixture
def make(house_of: Make) -> Make:
    return house_of


# --- death -------------------------------------------------------------------------------------------------


def test_a_death_ends_what_had_begun_and_moves_what_waited(make: Make) -> None:
    house = make()
    ids = [house.chat(f"prompt {i}", new=6) for i in range(7)]  # 4 slots
    house.hand("gpu").step()
    house.turn()
    house.hand("gpu").die()
    house.turn()
    assert house.reasons(ids) == [ERROR] * 4 + [None] * 3
    assert house.state("gpu") is BackendState.STOPPED
    words = house.message("gpu")
    assert "killed by signal 9" in words and "Requests 1 to 4 ended with error." in words
    assert "Requests 5 to 7 moved." in words
    for request_id in ids[4:]:
        moved = [e.receipt for e in house.events if isinstance(e, RequestRouted)][-3:]
        assert {(r.chosen, r.moved_from) for r in moved} == {("cpu", "gpu")}
        assert request_id in {r.request_id for r in moved}
    house.pump()
    assert house.reasons(ids) == [ERROR] * 4 + [LENGTH] * 3
    assert {house.done(i).backend for i in ids[4:]} == {"cpu"}  # type: ignore[union-attr]
    assert [n.level for n in house.events if isinstance(n, Notice)] == ["error"]


def test_a_request_whose_first_step_was_never_told_moves(make: Make) -> None:
    house = make()
    request_id = house.chat()
    house.hand("gpu").take()  # it has it, and dies over its first step
    house.hand("gpu").die()
    house.turn()
    house.pump()
    assert house.reasons([request_id]) == [LENGTH]


def test_what_the_dead_had_still_said_counts(make: Make) -> None:
    house = make()
    request_id = house.chat(new=1)
    house.hand("gpu").step()
    house.hand("gpu").die()
    house.turn()
    assert house.reasons([request_id]) == [LENGTH]


def test_the_others_requests_are_not_disturbed(make: Make) -> None:
    house = make(policy="round-robin")
    ids = [house.chat(f"prompt {i}") for i in range(4)]
    house.hand("cpu").step()
    house.hand("gpu").step()
    house.turn()
    house.hand("gpu").die()
    house.pump("cpu", until=lambda: None not in house.reasons(ids))
    assert house.reasons(ids) == [LENGTH, ERROR, LENGTH, ERROR]


def test_a_dead_backend_restarts_empty_and_serves(make: Make) -> None:
    house = make()
    first = house.chat("a prompt of several words " * 8)
    house.pump("gpu")
    assert house.reasons([first]) == [LENGTH]
    house.hand("gpu").die()
    house.turn()
    restart_backend(house.core, house.core.router.fastest_first()[0])
    assert house.state("gpu") is BackendState.LOADING
    house.hand("gpu").load()
    house.turn()
    assert house.state("gpu") is BackendState.READY
    second = house.chat("a prompt of several words " * 8)
    house.pump()
    done = house.done(second)
    assert done is not None and (done.backend, done.reason, done.cached_tokens) == ("gpu", LENGTH, 0)
    house.wait_s(1000)
    assert house.state("gpu") is BackendState.READY
    house.check()


def test_without_a_backend_everything_ends_in_words(make: Make) -> None:
    house = make()
    started, waiting = house.chat(new=50), house.chat(new=50, only="cpu")
    house.hand("gpu").step()
    house.turn()
    house.hand("gpu").die()
    house.hand("cpu").die()
    house.turn()
    late = house.chat()
    assert house.reasons([started, waiting, late]) == [ERROR] * 3
    assert "restart one" in house.done(late).message  # type: ignore[union-attr]
    house.turn()
    house.check()


def test_a_burst_survives_the_death_of_one_backend(make: Make) -> None:
    from engine.burst import Burst
    from engine.events import BurstDone

    house = make(policy="round-robin")
    house.core.bursts.start(burst := Burst("seed-warm-8", 0), None)
    house.pump(until=lambda: len(house.core.bursts.burst.open) >= 3)  # type: ignore[union-attr]
    house.hand("gpu").die()
    house.pump("cpu", until=lambda: any(isinstance(e, BurstDone) for e in house.events))
    (done,) = (e for e in house.events if isinstance(e, BurstDone))
    rows: Any = done.result["requests"]
    assert done.run_id == burst.run_id and not done.aborted and len(rows) == 8
    assert {r["finish_reason"] for r in rows} <= {"length", "error"}
    house.check()


def test_death_while_the_burst_is_seeded(make: Make) -> None:
    from engine.burst import Burst
    from engine.events import BurstDone

    house = make(policy="round-robin")
    house.core.bursts.start(Burst("seed-warm-8", 0), None)
    house.turn()
    house.hand("gpu").take()
    house.hand("gpu").die()
    house.pump("cpu", until=lambda: any(isinstance(e, BurstDone) for e in house.events))
    (done,) = (e for e in house.events if isinstance(e, BurstDone))
    assert not done.aborted and done.result["requests_per_backend"] == {"cpu": 8, "gpu": 0}


# --- stalls -------------------------------------------------------------------------------------------------


def test_silence_under_work_is_a_stall_and_a_step_ends_it(make: Make) -> None:
    house = make()
    request_id = house.chat()
    house.turn()
    house.wait_s(4)
    assert house.state("gpu") is BackendState.READY
    house.wait_s(2)
    assert house.state("gpu") is BackendState.STALLED
    house.hand("gpu").step()
    house.turn()
    assert house.state("gpu") is BackendState.READY
    house.pump()
    assert house.reasons([request_id]) == [LENGTH]


def test_silence_without_work_is_no_stall(make: Make) -> None:
    house = make()
    house.chat()
    house.pump()
    house.wait_s(10_000)
    assert house.state("gpu") is BackendState.READY


def test_a_step_that_is_slow_by_its_rate_is_no_stall(make: Make) -> None:
    """512 tokens at 73 tok/s take 7 s: that is no stall on a backend known to be that slow."""
    house = make(prefill=73.0)
    house.chat("word " * 600)
    house.turn()
    house.wait_s(9)
    assert house.state("gpu") is BackendState.READY
    house.wait_s(65)
    assert house.state("gpu") is BackendState.STALLED


def test_a_cancel_that_comes_too_late_looks_like_no_stall(make: Make) -> None:
    """Nobody answers it, so nobody may wait for an answer."""
    house = make()
    request_id = house.chat(new=3)
    house.pump()
    house.core.supervisor.send(house.core.router.fastest_first()[0], Cancel(request_id))
    house.pump()
    house.wait_s(1000)
    assert house.state("gpu") is BackendState.READY


def test_a_stalled_backend_can_be_restarted(make: Make) -> None:
    house = make()
    started = [house.chat(f"prompt {i}", new=50) for i in range(4)]
    waiting = house.chat()
    house.hand("gpu").step()
    house.turn()
    house.wait_s(6)
    assert house.state("gpu") is BackendState.STALLED
    restart_backend(house.core, house.core.router.fastest_first()[0])
    assert house.reasons(started) == [ERROR] * 4
    house.pump("cpu")
    house.hand("gpu").load()
    house.turn()
    house.wait_s(1000)
    assert house.state("gpu") is BackendState.READY
    house.pump()
    assert house.reasons([waiting]) == [LENGTH]
    assert house.done(waiting).backend == "cpu"  # type: ignore[union-attr]
    house.check()


# --- cancelling at awkward moments --------------------------------------------------------------------------


def test_cancel_before_the_backend_tells_its_admission(make: Make) -> None:
    """The first step is computed when the user cancels: its report must not revive the request."""
    house = make()
    request_id = house.chat()
    house.hand("gpu").step()  # admitted and one token, told but not read yet
    house.core.cancel(request_id)
    house.pump()
    done = house.done(request_id)
    assert done is not None and (done.reason, done.output_tokens) == (ABORT, 0)
    assert house.core.ledger.entries[request_id].wasted_tokens == 1
    house.check()


def test_cancel_after_the_backend_has_finished_it(make: Make) -> None:
    house = make()
    request_id = house.chat(new=1)
    house.hand("gpu").step()
    house.core.cancel(request_id)
    house.pump()
    assert house.reasons([request_id]) == [ABORT]
    house.check()


def test_tokens_past_a_stop_string_are_dropped(make: Make) -> None:
    house = make()
    request_id = house.chat(new=30, stop=(" ",))
    house.hand("gpu").step()
    house.hand("gpu").step()
    house.hand("gpu").step()
    house.turn()
    house.pump()
    done = house.done(request_id)
    assert done is not None and (done.reason, done.output_tokens) == (STOP, 1)
    assert house.core.ledger.entries[request_id].wasted_tokens == 2
    assert house.text(request_id) == ""
    house.check()


def test_a_cancelled_request_leaves_no_load_behind(make: Make) -> None:
    house = make()
    for _ in range(3):
        house.core.cancel(house.chat())
    house.pump()
    request_id = house.chat()
    receipt = next(
        e.receipt for e in house.events if isinstance(e, RequestRouted) and e.receipt.request_id == request_id
    )
    assert all(c.active + c.queued == 0 for c in receipt.candidates)


# --- before anything has loaded ---------------------------------------------------------------------------


def test_a_prompt_typed_early_waits_for_the_first_backend(make: Make) -> None:
    house = make(load=False)
    request_id = house.chat()
    house.turn()
    assert house.done(request_id) is None
    house.hand("cpu").load()
    house.pump("cpu", until=lambda: house.done(request_id) is not None)
    assert house.done(request_id).backend == "cpu"  # type: ignore[union-attr]
    house.check()


def test_a_prompt_typed_early_can_be_cancelled(make: Make) -> None:
    house = make(load=False)
    one, two, three = house.chat(), house.chat(), house.chat()
    house.core.cancel(two)
    assert house.reasons([one, two, three]) == [None, ABORT, None]
    house.core.cancel_all()
    assert house.reasons([one, two, three]) == [ABORT] * 3
    house.hand("cpu").load()
    house.hand("gpu").load()
    house.turn()
    assert not [e for e in house.events if isinstance(e, RequestRouted)]
    house.check()


def test_a_prompt_typed_early_ends_when_nothing_can_load(make: Make) -> None:
    house = make(load=False)
    request_id = house.chat()
    house.hand("cpu").fail("There is no memory for it.")
    house.turn()
    assert house.done(request_id) is None
    house.hand("gpu").fail("The driver is too old.")
    house.turn()
    done = house.done(request_id)
    assert done is not None and done.reason is ERROR and "The driver is too old." in done.message
    assert house.message("cpu").startswith("There is no memory for it.")
    house.check()


def test_one_backend_that_cannot_load_leaves_the_other(make: Make) -> None:
    house = make(load=False)
    house.hand("gpu").fail("The driver is too old.")
    house.hand("cpu").load()
    house.turn()
    assert (house.state("gpu"), house.state("cpu")) == (BackendState.STOPPED, BackendState.READY)
    request_id = house.chat()
    house.pump()
    assert house.reasons([request_id]) == [LENGTH]


# --- numbers -----------------------------------------------------------------------------------------------


def test_reports_are_told_in_order(make: Make) -> None:
    house = make(policy="round-robin")
    for i in range(6):
        house.chat(f"prompt {i}")
    house.pump()
    for name in ("cpu", "gpu"):
        told = [
            e.report.sequence for e in house.events if isinstance(e, StepDone) and e.report.backend == name
        ]
        assert told == list(range(len(told))) and told
    house.check()
