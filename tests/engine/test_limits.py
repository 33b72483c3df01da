"""Slots and token budgets that change while the backends run."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from engine.backend import SetLimits
from engine.burst import Burst
from engine.config import BackendOptions, BackendSpec, Limits, live_limits
from engine.deaths import restart_backend
from engine.errors import ConfigError, ReloadError, UnknownNameError
from engine.events import BackendStatus, RequestRouted, StepDone
from engine.limits import reload_reason, usual_slots, wanted_limits
from engine.profiling.profile import load_profile
from engine.request import BackendName, FinishReason
from engine.step_report import StepReport
from tests.engine.by_hand import House
from tests.engine.conftest import Make

CPU, GPU = BackendName("cpu"), BackendName("gpu")
LENGTH = FinishReason.LENGTH
REAL_CPU = BackendSpec(CPU, "cpu", "cpu", slots=4)
REAL_GPU = BackendSpec(GPU, "gpu", "cuda:0", slots=4, token_budget=2048)
METAL = BackendSpec(GPU, "gpu", "mps", slots=4, token_budget=2048)
EMULATED = BackendSpec(GPU, "gpu", "emulated", slots=4)


# --- what can be asked of a backend that runs ------------------------------------------------------------


@pytest.mark.parametrize("spec", [REAL_CPU, REAL_GPU, METAL])
def test_a_real_backend_takes_less_and_no_more_than_it_was_started_with(spec: BackendSpec) -> None:
    assert live_limits(spec, BackendOptions(slots="1", token_budget=64), 4) == Limits(1, 64)
    assert live_limits(spec, BackendOptions(slots="4"), 4).slots == 4
    with pytest.raises(ReloadError, match="prepared for 4 slots: more take a reload"):
        live_limits(spec, BackendOptions(slots="5"), 4)
    with pytest.raises(ReloadError, match="tokens a step: more take a reload"):
        live_limits(REAL_CPU, BackendOptions(token_budget=1024), 4)


def test_an_emulated_backend_takes_anything_that_makes_sense() -> None:
    assert live_limits(EMULATED, BackendOptions(slots="64", token_budget=4096), 4) == Limits(64, 4096)
    with pytest.raises(ConfigError, match="unclear"):
        live_limits(EMULATED, BackendOptions(slots="300"), 4)
    with pytest.raises(ConfigError, match="at least one token a slot"):
        live_limits(EMULATED, BackendOptions(slots="64", token_budget=32), 4)


def test_a_step_on_metal_stays_short() -> None:
    assert METAL.limits.token_budget == 512
    assert live_limits(METAL, BackendOptions(token_budget=2048), 4).token_budget == 512


def test_the_line_names_backends_as_the_command_line_does() -> None:
    usual = usual_slots([REAL_CPU, EMULATED], load_profile("batching-gpu"))
    wanted = wanted_limits(usual, "gpu=9", None)
    assert wanted == {CPU: Limits(4, 512), GPU: Limits(9, 512)}
    assert reload_reason(usual, "gpu=9", None) == ""
    assert reload_reason(usual, "cpu=9", None).startswith("CPU was prepared")
    assert "not known yet" in reload_reason({}, "4", None)
    with pytest.raises(UnknownNameError):
        wanted_limits(usual, "tpu=1", None)


# --- by hand ---------------------------------------------------------------------------------------------


@pytest.fixture
def house(house_of: Callable[..., House]) -> House:
    return house_of()


def change(house: House, slots: int, token_budget: int = 512, auto: bool = False) -> None:
    house.core.limits.change({GPU: Limits(slots, token_budget), CPU: Limits(4, 512)}, auto)


def active(house: House) -> int:
    return sum(r.active for r in house.hand("gpu").backend.scheduler.load().requests)


def pace(house: House, name: BackendName = GPU) -> tuple[int, int]:
    found = house.core.router._mirrors[name].pace
    assert found is not None
    return found.slots, found.token_budget


def test_fewer_slots_let_those_who_run_finish(house: House) -> None:
    ids = [house.chat(f"prompt {i}", new=20) for i in range(8)]  # 4 slots
    house.hand("gpu").step()
    house.turn()
    assert active(house) == 4
    change(house, 1)
    assert pace(house) == (1, 512), "the router prices it so at once"
    assert house.core.supervisor.units[GPU].info.slots == 1
    running = [active(house)]
    while house.hand("gpu").step():
        house.turn()
        house.hand("gpu").backend.scheduler.check_integrity()
        running.append(active(house))
        house.chat(new=1) if len(running) == 3 else None  # a decision while more run than there are slots
    assert running[:10] == [4] * 10
    assert all(later <= sooner for sooner, later in pairwise(running[:20]))
    assert max(running[25:]) == 1
    assert house.reasons(ids) == [LENGTH] * 8
    house.check()


def test_more_slots_admit_who_waits(house: House) -> None:
    ids = [house.chat(f"prompt {i}", new=20) for i in range(9)]
    house.hand("gpu").step()
    house.turn()
    assert active(house) == 4
    change(house, 7)
    house.hand("gpu").step()
    assert active(house) == 7 and pace(house) == (7, 512)
    house.pump()
    assert house.reasons(ids) == [LENGTH] * 9
    house.check()


def test_a_smaller_budget_cuts_prompts_from_the_next_step_on(house: House) -> None:
    request = house.chat("word " * 600, new=2)
    house.hand("gpu").step()
    house.turn()
    change(house, 4, 64)
    for _ in range(2):
        house.hand("gpu").step()
        house.turn()
    steps = [e.report.prefill_tokens for e in house.events if isinstance(e, StepDone)]
    assert steps[0] == 512 and steps[1] == 64 and pace(house) == (4, 64)
    house.pump()
    assert house.reasons([request]) == [LENGTH]
    house.check()


def test_more_rows_than_the_budget_go_on_decoding(house: House) -> None:
    change(house, 20)
    ids = [house.chat(f"prompt {i}", new=30) for i in range(20)]
    house.hand("gpu").step()
    house.turn()
    change(house, 16, 16)
    ids.append(house.chat("one more", new=2))
    house.pump()
    assert house.reasons(ids) == [LENGTH] * 21
    house.check()


def test_what_changes_nothing_sends_nothing(house: House) -> None:
    change(house, 4)
    change(house, 3)
    change(house, 3)
    house.hand("gpu").take()
    assert house.hand("gpu").commands == [SetLimits(Limits(3, 512))]


def test_a_backend_that_comes_back_has_the_limits_that_were_asked_for(house: House) -> None:
    change(house, 2, 128)
    house.hand("gpu").die()
    house.turn()
    restart_backend(house.core, GPU)
    assert house.hand("gpu").backend.scheduler.slots == 4, "as it was planned"
    house.hand("gpu").load()
    house.turn()
    house.hand("gpu").take()
    assert house.hand("gpu").backend.scheduler.slots == 2
    assert house.core.supervisor.units[GPU].info.slots == 2 and pace(house) == (2, 128)


def test_a_stalled_backend_hears_of_it_when_it_wakes(house: House) -> None:
    request = house.chat(new=3)
    house.wait_s(6)
    change(house, 2)
    house.hand("gpu").take()
    assert not any(isinstance(c, SetLimits) for c in house.hand("gpu").commands)
    house.pump()
    assert house.reasons([request]) == [LENGTH]
    assert house.hand("gpu").backend.scheduler.slots == 2


def test_auto_takes_as_many_as_pay_and_a_number_ends_it(house: House) -> None:
    change(house, 8, auto=True)
    # Every number of rows takes the same time here: eight at once are the most.
    assert house.core.supervisor.units[GPU].info.slots == 8
    change(house, 3)
    assert pace(house)[0] == 3


def test_a_burst_with_slots_of_its_own_keeps_them_to_its_end(house: House) -> None:
    core = house.core
    core.bursts.start(Burst("seed-warm-8", 0, slots={"gpu": 2}), None)
    house.turn()
    assert core.supervisor.units[GPU].info.slots == 2
    change(house, 3)
    assert core.supervisor.units[GPU].info.slots == 2, "not while it runs"
    core.cancel_all()
    assert core.supervisor.units[GPU].info.slots == 3
    house.pump()
    house.check()


def test_a_measurement_has_all_slots(house: House) -> None:
    change(house, 2)
    house.core.limits.hold(GPU)
    assert pace(house)[0] == 4
    house.core.limits.release(GPU)
    assert pace(house)[0] == 2


# --- an emulated backend in its own thread ---------------------------------------------------------------


def test_a_running_engine_takes_them_and_says_so(make: Make) -> None:
    it = make(policy="forced-gpu")
    ids = [it.chat(f"prompt {i}", new=400) for i in range(6)]
    it.wait(lambda e: _active(e) == 4)
    it.engine.set_limits("gpu=1,cpu=4", None)
    it.wait(lambda e: isinstance(e, BackendStatus) and e.info.name == GPU and e.info.slots == 1)
    assert all(it.done(i).reason is LENGTH for i in ids)
    last = [_active(e) for e in it.of(StepDone)][-50:]
    assert max(last) == 1, "one after the other in the end"
    assert len(it.of(RequestRouted)) == 6
    assert it.engine.reload_reason("32", 4096) == ""
    with pytest.raises(ConfigError, match="unclear"):
        it.engine.set_limits("many", None)


def test_a_burst_whose_slots_change_is_kept_out_of_comparisons(make: Make) -> None:
    it = make(policy="forced-gpu")
    run_id = it.engine.run_burst("seed-warm-8")
    it.wait(lambda e: isinstance(e, RequestRouted))
    it.engine.set_limits("2", None)
    result: dict[str, Any] = it.burst_done(run_id).result
    assert result["mixed"] is True
    assert len(result["requests"]) == 8
    assert {b["slots"] for b in result["backends"]} == {2}


def _active(event: object) -> int:
    report = event.report if isinstance(event, StepDone) else None
    return sum(r.active for r in report.load.requests) if isinstance(report, StepReport) else 0
