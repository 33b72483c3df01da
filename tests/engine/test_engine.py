"""The facade on fast emulated backends: chats, bursts, cancelling, closing."""

import time

import pytest

from engine.config import BackendOptions, EngineConfig
from engine.engine import Engine
from engine.errors import ConfigError, PromptError, SamplingError, UnknownNameError
from engine.events import (
    BackendState,
    BackendStatus,
    EngineFailed,
    EngineReady,
    ModelLoaded,
    RequestArrived,
    RequestDone,
    RequestRouted,
    StepDone,
    TextOut,
)
from engine.request import FinishReason, SamplingParams
from tests.engine.conftest import Make

# --- starting --------------------------------------------------------------------------------------------


def test_the_backends_are_told_before_they_load(make: Make) -> None:
    it = make()
    it.wait(lambda e: isinstance(e, EngineReady))
    states = {n: [e.state for e in it.of(BackendStatus) if e.info.name == n] for n in ("cpu", "gpu")}
    for told in states.values():
        assert told[:2] == [BackendState.WAITING, BackendState.LOADING] and told[-1] is BackendState.READY
    infos = {e.info.name: e.info for e in it.of(BackendStatus)}
    assert [infos[n].rank for n in ("gpu", "cpu")] == [0, 1]
    assert infos["gpu"].decode_rate == pytest.approx(1000) and infos["gpu"].emulated
    (model,) = it.of(ModelLoaded)
    assert model.name == "Placeholder text" and model.emulated and model.emulation == "A test's own"


def test_an_unknown_policy_ends_the_start(make: Make) -> None:
    it = make(ready=False, policy="best-guess")
    with pytest.raises(UnknownNameError, match="'best-guess'"):
        it.engine.wait_ready(10)
    assert [e.message.startswith("There is no policy") for e in it.of(EngineFailed)] == [True]


def test_an_unknown_profile_ends_the_start() -> None:
    engine = Engine(EngineConfig(emulate="apple-m9"))
    engine.start()
    with pytest.raises(UnknownNameError, match="apple-m9"):
        engine.wait_ready(10)
    engine.close()


@pytest.mark.parametrize(
    "options",
    [
        BackendOptions(token_budget=2),
        BackendOptions(token_budget=-1),
        BackendOptions(slots="0"),
        BackendOptions(slots="gpu=x"),
        BackendOptions(slots="tpu=2"),
        BackendOptions(slots="\u00b2"),
        BackendOptions(slots="64", token_budget=32),
        BackendOptions(scheduling="lifo"),
    ],
)
def test_impossible_options_are_one_sentence(make: Make, options: BackendOptions) -> None:
    it = make(ready=False, options=options)
    with pytest.raises(ConfigError) as caught:
        it.engine.wait_ready(10)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


# --- chats -----------------------------------------------------------------------------------------------


def test_a_reply_streams_and_ends(make: Make) -> None:
    it = make()
    request_id = it.chat(new=12)
    done = it.done(request_id)
    assert done.reason is FinishReason.LENGTH and done.output_tokens == 12
    assert len(it.of(TextOut, request_id)) == 12 and len(it.text(request_id).split()) == 12
    (arrived,) = it.of(RequestArrived, request_id)
    assert (arrived.number, arrived.run_id, arrived.max_new_tokens) == (1, None, 12)
    assert arrived.prompt_tokens == done.prompt_tokens == 3  # "user: hello there"
    t = done.timings
    assert t.submitted_s <= t.admitted_s <= t.first_token_s <= t.finished_s  # type: ignore[operator]
    assert len(t.itl_s) == 11
    it.settle([request_id])


def test_replies_beside_each_other_end_each_with_their_own(make: Make) -> None:
    it = make(policy="round-robin")
    ids = [it.chat(f"prompt number {i}", new=5 + i) for i in range(12)]
    for i, request_id in enumerate(ids):
        assert it.done(request_id).output_tokens == 5 + i
    it.settle(ids)
    assert {r.receipt.chosen for r in it.of(RequestRouted)} == {"cpu", "gpu"}
    assert [a.number for a in it.of(RequestArrived)] == list(range(1, 13))


def test_a_user_chooses_a_backend(make: Make) -> None:
    it = make()
    for name in ("cpu", "gpu", "cpu"):
        assert it.done(it.chat(backend=name)).backend == name
    with pytest.raises(UnknownNameError, match="'tpu'.*cpu, gpu"):
        it.chat(backend="tpu")


def test_the_next_turn_restores_the_last_one(make: Make) -> None:
    it = make(policy="forced-gpu")
    first = [{"role": "user", "content": " ".join(f"word{i}" for i in range(40))}]
    sampling = SamplingParams(max_new_tokens=20)
    one = it.engine.submit_chat(first, sampling)
    it.done(one)
    turn = [*first, {"role": "assistant", "content": it.text(one)}, {"role": "user", "content": "go on"}]
    done = it.done(it.engine.submit_chat(turn, sampling))
    assert done.prompt_tokens == 41 + 20 + 2 and done.cached_tokens == 48  # 61 of it computed, whole blocks


def test_a_stop_string_at_the_very_beginning(make: Make) -> None:
    it = make()
    request_id = it.chat(new=40, stop=(" ",))
    assert it.done(request_id).reason is FinishReason.STOP and it.text(request_id) == ""
    it.settle([request_id])


def _words(request_number: int, count: int) -> list[str]:
    from engine.execution.profile_runner import PLACEHOLDER_TOKENS
    from engine.placeholder import PlaceholderCodec

    return [
        PlaceholderCodec.word((request_number * 37 + i) % PLACEHOLDER_TOKENS).strip() for i in range(count)
    ]


def test_a_stop_string_of_two_words_ends_the_reply_before_it(make: Make) -> None:
    it = make()
    words = _words(1, 12)
    request_id = it.chat(new=200, stop=(f"{words[5]} {words[6]}",))
    assert request_id == 1
    done = it.done(1)
    assert done.reason is FinishReason.STOP
    assert it.text(1).split() == words[:5]
    assert 7 <= done.output_tokens < 100
    it.settle([1])


def test_a_stop_string_complete_with_the_last_token_ends_once(make: Make) -> None:
    """The backend ends the request for its length in the very step that completes the stop string."""
    it = make()
    words = _words(1, 7)
    it.chat(new=7, stop=(f"{words[5]} {words[6]}",))
    assert it.done(1).reason is FinishReason.STOP
    assert it.text(1).split() == words[:5]
    it.settle([1])


def test_half_a_stop_string_is_shown_in_the_end(make: Make) -> None:
    it = make()
    words = _words(1, 6)
    it.chat(new=6, stop=(f"{words[5]} and something else",))
    assert it.done(1).reason is FinishReason.LENGTH
    assert it.text(1).split() == words
    it.settle([1])


def test_ignore_eos_ignores_stop_strings(make: Make) -> None:
    it = make()
    assert it.done(it.chat(new=10, stop=(" ",), ignore_eos=True)).output_tokens == 10


def test_an_empty_prompt_is_refused(make: Make) -> None:
    it = make()
    for text in ("", "  \n"):
        with pytest.raises(PromptError, match="empty"):
            it.chat(text)
    with pytest.raises(PromptError):
        it.engine.submit_chat([], SamplingParams())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", float("nan")),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", -1),
        ("min_p", 1),
        ("repetition_penalty", 0),
        ("repetition_penalty", float("inf")),
        ("seed", -1),
    ],
)
def test_nonsense_sampling_is_refused_by_name(make: Make, name: str, value: float) -> None:
    it = make()
    with pytest.raises(SamplingError, match=name):
        it.chat(**{name: value})
    with pytest.raises(SamplingError, match="max_new_tokens"):
        it.chat(new=0)
    with pytest.raises(SamplingError, match="stop string"):
        it.chat(stop=("",))


def test_a_prompt_over_the_context_says_both_numbers(make: Make) -> None:
    it = make(context_tokens=64)
    request_id = it.chat(" ".join(["word"] * 100))
    done = it.done(request_id)
    assert done.reason is FinishReason.ERROR and "101" in done.message and "64" in done.message
    it.settle([request_id])
    assert not it.of(RequestRouted)


def test_a_prompt_over_the_pool_says_both_numbers(make: Make) -> None:
    it = make(kv_blocks=4)
    done = it.done(it.chat(new=100))
    assert done.reason is FinishReason.ERROR and "7 KV blocks" in done.message and "4" in done.message
    assert it.done(it.chat(new=60)).reason is FinishReason.LENGTH  # and the engine goes on


def test_a_full_context_is_called_context(make: Make) -> None:
    it = make(context_tokens=32)
    done = it.done(it.chat("two words", new=200))
    assert done.reason is FinishReason.CONTEXT and done.output_tokens == 29
    assert "32 tokens is full" in done.message


# --- cancelling ------------------------------------------------------------------------------------------


def test_cancel_while_it_streams(make: Make) -> None:
    it = make()
    request_id = it.chat(new=3000)
    it.wait(lambda e: isinstance(e, TextOut))
    it.engine.cancel(request_id)
    done = it.done(request_id)
    assert done.reason is FinishReason.ABORT and 0 < done.output_tokens < 3000
    it.engine.cancel(request_id)
    it.engine.cancel(request_id + 100)  # type: ignore[arg-type]
    assert it.done(it.chat()).reason is FinishReason.LENGTH
    it.settle()


def test_cancel_at_once_ends_once(make: Make) -> None:
    """The backend may admit and even compute it before it reads the cancel."""
    it = make(decode_s=0.02)
    ids = []
    for _ in range(12):
        ids.append(it.chat(new=50))
        it.engine.cancel(ids[-1])
        time.sleep(0.007)
    for request_id in ids:
        assert it.done(request_id).reason is FinishReason.ABORT
    it.settle(ids, 0.3)
    (last,) = [e.report.load for e in it.of(StepDone) if e.report.backend == "gpu"][-1:]
    assert last.requests == ()


def test_cancel_all_stops_chats_and_bursts(make: Make) -> None:
    it = make(decode_s=0.005)
    run_id = it.engine.run_burst("seed-warm-48")
    it.wait(lambda e: isinstance(e, StepDone) and e.report.decode_rows > 1)
    it.chat(new=500)
    it.engine.cancel_all()
    done = it.burst_done(run_id)
    assert done.aborted
    it.settle(seconds=0.2)
    assert {e.reason for e in it.of(RequestDone)} <= {FinishReason.ABORT, FinishReason.LENGTH}
    arrived = len(it.of(RequestArrived))
    assert arrived < 49  # what had not come never came
    again = it.engine.run_burst("seed-warm-8")
    assert not it.burst_done(again).aborted
