"""Bursts and closing, on fast emulated backends through the facade."""

import time
from typing import Any

import pytest

from engine.errors import BackendError, UnknownNameError
from engine.events import BurstStarted, Notice, RequestArrived, RequestDone, StepDone
from engine.request import FinishReason
from tests.engine.conftest import Make
from tests.engine.watched import Watched

# --- bursts ----------------------------------------------------------------------------------------------


def test_the_result_of_a_burst(make: Make) -> None:
    it = make()
    run_id = it.engine.run_burst("seed-warm-8")
    done = it.burst_done(run_id)
    r: dict[str, Any] = done.result
    assert not done.aborted
    assert (r["preset"], r["policy"], r["emulated"], r["simulated"]) == (
        "seed-warm-8", "isolated-rates", True, False,
    )  # fmt: skip
    rows = r["requests"]
    assert [x["id"] for x in rows] == list(range(1, 9))
    assert {(x["prompt_tokens"], x["cached_tokens"], x["output_tokens"]) for x in rows} == {(516, 496, 128)}
    assert r["makespan_s"] == pytest.approx(max(x["arrival_s"] + x["e2e_s"] for x in rows), abs=1e-5)
    assert r["output_throughput"] == pytest.approx(8 * 128 / r["makespan_s"], rel=1e-4)
    (started,) = it.of(BurstStarted)
    assert (started.run_id, started.count, len(started.offsets_s)) == (run_id, 8, 8)
    it.settle()
    assert [e.number for e in it.of(RequestArrived) if e.run_id == run_id] == list(range(1, 9))


def test_emulation_schedules_as_the_simulation_does(make: Make) -> None:
    from engine.profiling.profile import load_profile
    from engine.simulation.simulate import fake_tokenise, simulate
    from engine.workloads.presets import make_workload

    it = make(decode_s=0.002, policy="forced-gpu")
    real: dict[str, Any] = it.burst_done(it.engine.run_burst("seed-warm-8")).result
    profile = load_profile(it.engine.config.emulate or "")
    simulated: dict[str, Any] = simulate(profile, make_workload("seed-warm-8", fake_tokenise), "forced-gpu")
    for mine, theirs in zip(real["requests"], simulated["requests"], strict=True):
        for key in ("id", "backend", "prompt_tokens", "cached_tokens", "output_tokens", "finish_reason"):
            assert mine[key] == theirs[key]
    assert real["makespan_s"] >= 0.98 * simulated["makespan_s"]


def test_two_bursts_at_once(make: Make) -> None:
    it = make()
    first, second = it.engine.run_burst("seed-warm-8"), it.engine.run_burst("cold-12")
    refused = it.burst_done(second)
    assert refused.aborted and refused.result == {}
    assert any("burst is running" in n.message for n in it.of(Notice))
    assert not it.burst_done(first).aborted
    third = it.engine.run_burst("seed-warm-8")
    assert not it.burst_done(third).aborted


def test_a_burst_waits_for_a_chat_that_streams(make: Make) -> None:
    it = make()
    chat = it.chat(new=150)
    it.engine.run_burst("seed-warm-8")
    it.wait(lambda e: isinstance(e, BurstStarted))
    assert it.of(RequestDone, chat)


def test_a_chat_beside_a_burst_marks_it_mixed(make: Make) -> None:
    it = make()
    run_id = it.engine.run_burst("seed-warm-8")
    it.wait(lambda e: isinstance(e, BurstStarted))
    it.chat()
    result = it.burst_done(run_id).result
    assert result["mixed"] is True and len(result["requests"]) == 8  # type: ignore[arg-type]


def test_unknown_names_are_refused_at_once(make: Make) -> None:
    it = make()
    with pytest.raises(UnknownNameError, match="'warm-9'.*seed-warm-8"):
        it.engine.run_burst("warm-9")
    with pytest.raises(UnknownNameError, match="'forced-tpu'"):
        it.engine.run_burst("cold-12", "forced-tpu")
    with pytest.raises(UnknownNameError, match="'best'"):
        it.engine.set_policy("best")
    with pytest.raises(UnknownNameError, match="'tpu'"):
        it.engine.restart_backend("tpu")
    assert it.done(it.chat()).reason is FinishReason.LENGTH  # the engine is unharmed


def test_a_policy_for_one_burst(make: Make) -> None:
    it = make()
    result = it.burst_done(it.engine.run_burst("seed-warm-8", "forced-cpu")).result
    assert result["policy"] == "forced-cpu" and result["requests_per_backend"] == {"cpu": 8, "gpu": 0}


def test_a_policy_that_turns_out_unknown_ends_the_burst(make: Make) -> None:
    """Before the backends are known no name can be checked."""
    it = make(ready=False, start=False)
    run_id = it.engine.run_burst("seed-warm-8", "forced-tpu")
    it.engine.start()
    assert it.burst_done(run_id).aborted
    assert any("forced-tpu" in n.message for n in it.of(Notice))


def test_a_pool_too_small_for_the_seeding_ends_the_burst(make: Make) -> None:
    it = make(kv_blocks=16)
    assert it.burst_done(it.engine.run_burst("seed-warm-8")).aborted
    assert any("KV blocks" in n.message for n in it.of(Notice))
    assert it.done(it.chat()).reason is FinishReason.LENGTH


def test_requests_too_large_for_the_pool_end_with_error_and_the_burst_ends(make: Make) -> None:
    it = make(kv_blocks=34)
    result = it.burst_done(it.engine.run_burst("cold-12")).result
    assert {r["finish_reason"] for r in result["requests"]} == {"error"}  # type: ignore[attr-defined]


# --- closing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pause_s", [0.0, 0.005, 0.05])
def test_close_during_load(make: Make, pause_s: float) -> None:
    it = make(ready=False)
    time.sleep(pause_s)
    _closes(it)


def test_close_during_a_burst(make: Make) -> None:
    it = make(decode_s=0.1)
    it.engine.run_burst("seed-warm-48")
    it.wait(lambda e: isinstance(e, StepDone))
    _closes(it)


def test_close_twice_and_before_start(make: Make) -> None:
    it = make()
    _closes(it)
    _closes(it)
    fresh = make(ready=False, start=False)
    _closes(fresh)


def test_calls_after_close_do_no_harm(make: Make) -> None:
    it = make()
    it.engine.close()
    with pytest.raises(BackendError, match="ended"):
        it.chat()
    it.engine.cancel_all()
    it.engine.run_burst("seed-warm-8")


def test_waiting_for_an_engine_that_is_not_ready(make: Make) -> None:
    it = make(ready=False, start=False)
    with pytest.raises(BackendError, match="not ready"):
        it.engine.wait_ready(0.01)


def _closes(it: Watched) -> None:
    began = time.monotonic()
    it.engine.close()
    assert time.monotonic() - began < 3
