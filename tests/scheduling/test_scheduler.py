"""Scheduler promises, one by one, on a memory that remembers every token."""

import pytest

from engine.config import BLOCK_TOKENS
from engine.errors import UnknownNameError
from engine.request import FinishReason, RequestId
from engine.scheduling.policies import POLICIES, make_policy
from tests.builders import drive, make_request, make_scheduler, sequential, unlike

ALL = list(POLICIES)


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(UnknownNameError, match="'lifo'.*fcfs"):
        make_policy("lifo")


def test_an_idle_scheduler_does_nothing() -> None:
    scheduler = make_scheduler()
    assert scheduler.idle and not scheduler.schedule(0.0).rows


def test_chunks_end_where_the_budget_ends() -> None:
    d = drive(budget=32)
    d.add(make_request(1, 80, 4))
    d.run()
    assert [x[1] for x in d.lengths] == [32, 32, 16, 1, 1, 1]
    assert d.outputs[1] == sequential(make_request(1, 80, 4))[0]


def test_decode_rows_come_before_prefill_and_take_from_its_budget() -> None:
    d = drive(budget=32)
    d.add(make_request(1, 20, 9))
    d.step()
    d.add(make_request(2, 100, 4))
    batch = d.step()
    assert [(r.request_id, r.is_decode, r.length) for r in batch.rows] == [(1, True, 1), (2, False, 31)]
    assert (batch.decode_rows, batch.context_tokens, batch.prefill_tokens) == (1, 21, 31)
    assert (batch.prefill_chunks, batch.prefill_attention) == (1, 31 * 31 / 2)


def test_decoding_goes_on_beside_a_long_prefill() -> None:
    d = drive(budget=17, slots=2)
    d.add(make_request(1, 8, 20))
    d.step()
    d.add(make_request(2, 300, 2))
    d.run()
    steps_of_1 = [i for i, x in enumerate(d.lengths) if 1 in x]
    assert steps_of_1 == list(range(20))  # its prompt, then 19 decodes without a gap


def test_a_prompt_may_be_filled_up_by_several_requests_in_one_step() -> None:
    d = drive(budget=64)
    d.add(*(make_request(i, 20, 2) for i in (1, 2, 3, 4)))
    assert d.step().prefill_tokens == 64  # 20 + 20 + 20 + 4
    assert d.lengths[0] == {1: 20, 2: 20, 3: 20, 4: 4}


def test_the_lowest_free_slot_is_taken() -> None:
    d = drive(slots=3)
    d.add(*(make_request(i, 4, 2 if i == 2 else 9) for i in (1, 2, 3, 4)))
    d.run(until=lambda: 2 in d.reasons)
    d.step()
    assert {r.request_id: r.slot for r in d.scheduler.load().requests} == {1: 0, 4: 1, 3: 2}


# --- finish reasons -----------------------------------------------------------------------------------


def _eos_of(prompt: int, place: int) -> int:
    """An id that the model says for the first time as its `place`-th token."""
    tokens = sequential(make_request(1, prompt, place))[0]
    assert tokens[-1] not in tokens[:-1]
    return tokens[-1]


def test_end_of_text_stops() -> None:
    eos = _eos_of(10, 4)
    d = drive(eos=[eos])
    d.add(make_request(1, 10, 50))
    d.run()
    assert d.reasons[1] is FinishReason.STOP
    assert len(d.outputs[1]) == 4 and d.outputs[1][-1] == eos


def test_ignore_eos_goes_on() -> None:
    d = drive(eos=[_eos_of(10, 4)])
    d.add(make_request(1, 10, 12, ignore_eos=True))
    d.run()
    assert d.reasons[1] is FinishReason.LENGTH and len(d.outputs[1]) == 12


def test_end_of_text_as_the_last_allowed_token_is_a_stop() -> None:
    d = drive(eos=[_eos_of(10, 4)])
    d.add(make_request(1, 10, 4))
    d.run()
    assert d.reasons[1] is FinishReason.STOP


def test_a_full_context_is_called_context() -> None:
    request = make_request(1, 20, 100).fitted(32)
    assert request.context_cut and request.sampling.max_new_tokens == 12
    d = drive()
    d.add(request)
    d.run()
    assert d.reasons[1] is FinishReason.CONTEXT and len(d.outputs[1]) == 12


@pytest.mark.parametrize("policy", ALL)
def test_one_token_only(policy: str) -> None:
    d = drive(policy, budget=16)
    d.add(make_request(1, 40, 1), make_request(2, 1, 1))
    d.run()
    assert all(len(d.outputs[i]) == 1 for i in (1, 2))
    assert d.scheduler.kv.pool.unused == d.scheduler.kv.pool.num_blocks


# --- sharing a prefix that is being computed ------------------------------------------------------------


@pytest.mark.parametrize("policy", ALL)
@pytest.mark.parametrize("budget", [16, 24, 64, 512])
@pytest.mark.parametrize("copies", [2, 4])
def test_identical_prompts_are_computed_once(policy: str, budget: int, copies: int) -> None:
    """They arrive together. Each block is computed by one of them; the rest, by all."""
    length = 200  # 12 restorable blocks and a rest of 8
    d = drive(policy, budget=budget, blocks=128)
    prompt = unlike(1, length)
    d.add(*(make_request(i, prompt, 5) for i in range(1, copies + 1)))
    d.run()
    rest = length - (length - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    assert d.prefill_tokens == length + (copies - 1) * rest
    assert sum(d.cached.values()) == (length - rest) * (copies - 1)
    truth = sequential(make_request(1, prompt, 5))[0]
    assert all(out == truth for out in d.outputs.values())


@pytest.mark.parametrize("policy", ALL)
def test_a_common_head_is_computed_once(policy: str) -> None:
    head = unlike(9, 100)  # 6 whole blocks and 4 tokens
    requests = [make_request(i, (*head, *unlike(i, 30)), 4) for i in (1, 2, 3)]
    d = drive(policy, budget=32, blocks=128)
    d.add(*requests)
    d.run()
    assert d.prefill_tokens == 130 + 2 * (130 - 96)
    for request in requests:
        assert d.outputs[request.id] == sequential(request)[0]


def test_who_waits_for_a_block_goes_on_when_its_filler_is_cancelled() -> None:
    d = drive(budget=20, slots=2)  # a chunk of 20 leaves a block half filled
    prompt = unlike(1, 80)
    d.add(make_request(1, prompt, 4), make_request(2, prompt, 4))
    d.step()
    assert d.lengths[0] == {1: 20}  # request 2 waits for block 1
    assert d.scheduler.abort(RequestId(1))
    d.scheduler.check_integrity()
    d.step()
    assert 2 in d.lengths[1]
    d.run()
    assert d.outputs[2] == sequential(make_request(2, prompt, 4))[0]
    assert d.prefill_tokens == 20 + 80 - 16  # block 0 was complete and stays


def test_cancelling_the_one_that_waits_disturbs_nobody() -> None:
    d = drive(budget=20, slots=2)
    prompt = unlike(1, 80)
    d.add(make_request(1, prompt, 4), make_request(2, prompt, 4))
    d.step()
    assert d.scheduler.abort(RequestId(2))
    d.run()
    assert d.outputs[1] == sequential(make_request(1, prompt, 4))[0]
    assert 2 not in d.outputs


# --- admission ----------------------------------------------------------------------------------------


def test_slots_are_never_exceeded() -> None:
    d = drive(slots=2)
    d.add(*(make_request(i, 20, 4) for i in range(1, 8)))
    d.run()
    assert max(len(x) for x in d.lengths) == 2
    assert d.admitted == list(range(1, 8))


def test_admission_waits_for_blocks_and_preempts_nobody() -> None:
    d = drive(blocks=6)
    d.add(make_request(1, 40, 24), make_request(2, 40, 8))  # 4 and 3 blocks
    d.step()
    assert d.admitted == [1]
    d.run()
    assert d.admitted == [1, 2]
    assert set(d.reasons.values()) == {FinishReason.LENGTH}
    first_2 = next(i for i, x in enumerate(d.lengths) if 2 in x)
    assert not any(1 in x for x in d.lengths[first_2:])


def test_a_big_request_is_not_starved_by_small_ones() -> None:
    """Under fcfs nobody overtakes: small requests behind a big one wait until it has got in."""
    d = drive(blocks=8, slots=4)
    d.add(make_request(1, 30, 20))  # 4 of 8 blocks
    d.step()
    d.add(make_request(2, 100, 20))  # 8 of 8
    d.add(*(make_request(i, 4, 2) for i in range(3, 30)))
    d.run()
    assert d.admitted[:3] == [1, 2, 3]


def test_a_request_of_the_whole_pool_gets_in() -> None:
    d = drive(blocks=8)
    request = make_request(1, 100, 28)
    d.add(request)
    d.run()
    assert len(d.outputs[1]) == 28
    d.add(make_request(2, request.prompt, 28))  # half of it restored from the very blocks it needs
    d.run()
    assert d.outputs[2] == d.outputs[1] and d.cached[2] == 96


def test_shortest_prefill_first() -> None:
    d = drive("shortest-prefill-first", slots=1, budget=32)
    d.add(make_request(1, 90, 2), make_request(2, 30, 2), make_request(3, 60, 2), make_request(4, 30, 2))
    d.run()
    assert d.admitted == [2, 4, 3, 1]


def test_shortest_prefill_counts_what_is_cached() -> None:
    d = drive("shortest-prefill-first", slots=1, budget=512)
    d.add(make_request(1, unlike(1, 90), 2))
    d.run()
    d.add(make_request(2, 40, 2), make_request(3, (*unlike(1, 90), 5), 2))
    d.run()
    assert d.admitted == [1, 3, 2]


def test_shortest_prefill_orders_active_prompts_too() -> None:
    d = drive("shortest-prefill-first", budget=32)
    d.add(make_request(1, 100, 2))
    d.step()
    d.add(make_request(2, 20, 2))
    d.step()
    assert d.lengths[1] == {2: 20, 1: 12}


def test_fcfs_gives_the_first_all_it_can_use() -> None:
    d = drive("fcfs", budget=32)
    d.add(make_request(1, 50, 2), make_request(2, 50, 2))
    d.step()
    d.step()
    assert d.lengths == [{1: 32}, {1: 18, 2: 14}]


def test_round_robin_shares_evenly_in_whole_blocks() -> None:
    d = drive("round-robin", budget=110, blocks=128)
    d.add(*(make_request(i, 100, 2) for i in (1, 2, 3)))
    d.step()
    assert d.lengths[0] == {1: 32, 2: 32, 3: 32}  # 110 / 3 = 36, in whole blocks 32


def test_round_robin_takes_turns_where_the_budget_is_short() -> None:
    d = drive("round-robin", budget=16, slots=16, blocks=128)
    d.add(*(make_request(i, 40, 2) for i in range(1, 17)))
    d.run(until=lambda: len(d.lengths) >= 3)
    first = [next(r.request_id for r in b.rows) for b in d.batches]
    assert len(set(first)) == 3
    d.run()
    assert len(d.reasons) == 16


# --- cancelling ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", range(7))
def test_cancel_in_any_state_gives_everything_back(steps: int) -> None:
    d = drive(budget=24, slots=1)
    d.add(make_request(1, 60, 4), make_request(2, 10, 2))
    for _ in range(steps):
        if 1 not in d.reasons:
            d.step()
    gone = d.scheduler.abort(RequestId(1))
    assert gone == (1 not in d.reasons)
    assert not d.scheduler.abort(RequestId(1))
    d.scheduler.check_integrity()
    d.run()
    assert d.outputs[2] == sequential(make_request(2, 10, 2))[0]
    assert d.scheduler.kv.available == 64


def test_cancelling_a_stranger_is_no_error() -> None:
    assert not make_scheduler().abort(RequestId(77))


# --- what is published --------------------------------------------------------------------------------


def test_load_tells_the_remaining_work() -> None:
    d = drive(budget=32, slots=2)
    d.add(make_request(1, 8, 10), make_request(2, 100, 10), make_request(3, 50, 7))
    d.step()
    load = d.scheduler.load()
    told = [
        (r.request_id, r.slot, r.prefill_remaining, r.generated, r.decode_remaining) for r in load.requests
    ]
    assert told == [(1, 0, 0, 1, 9), (2, 1, 76, 0, 10), (3, -1, 50, 0, 7)]
    assert load.total_blocks == 64 and load.free_blocks == 64 - 2 - 7


def test_the_queue_is_told_in_order_of_admission() -> None:
    scheduler = make_scheduler("shortest-prefill-first")
    for request in (make_request(1, 90), make_request(2, 30), make_request(3, 60)):
        scheduler.add(request)
    assert [r.request_id for r in scheduler.load().requests] == [2, 3, 1]


def test_a_queued_request_keeps_its_estimate_and_says_when_it_is_stale() -> None:
    d = drive(slots=1, blocks=16)
    prefix = unlike(1, 64)
    d.add(make_request(1, prefix, 2))
    d.run()
    d.add(make_request(2, 20, 40))
    d.step()
    d.add(make_request(3, (*prefix[:48], *unlike(3, 20)), 4), estimate=48)
    (waiting,) = (r for r in d.scheduler.load().requests if not r.active)
    assert (waiting.cached_tokens, waiting.prefill_remaining, waiting.stale_estimate) == (48, 20, False)
    d.scheduler.kv.drop_unowned()
    (waiting,) = (r for r in d.scheduler.load().requests if not r.active)
    assert (waiting.cached_tokens, waiting.prefill_remaining, waiting.stale_estimate) == (0, 20, True)
    d.run()
    assert d.cached[3] == 0  # the truth counts at admission


def test_an_estimate_that_holds_again_is_no_longer_stale() -> None:
    """Its prefix was dropped and then computed anew by another request."""
    d = drive(slots=1, blocks=32)
    prefix = unlike(1, 64)
    d.add(make_request(2, prefix, 9))
    d.add(make_request(3, (*prefix[:48], *unlike(3, 20)), 4), estimate=48)
    (waiting,) = (r for r in d.scheduler.load().requests if r.request_id == 3)
    assert waiting.stale_estimate
    d.step()
    (waiting,) = (r for r in d.scheduler.load().requests if r.request_id == 3)
    assert (waiting.cached_tokens, waiting.stale_estimate) == (48, False)


def test_adoption_after_admission_is_told() -> None:
    d = drive(budget=128)
    prompt = unlike(1, 100)
    d.scheduler.add(make_request(1, prompt, 3), 0)
    d.scheduler.add(make_request(2, prompt, 3), 0)
    d.scheduler.update(first := d.scheduler.schedule(1.5), d.memory.execute(first))
    admitted, adopted = d.scheduler.take_admissions()
    assert [(a.request_id, a.cached_tokens, a.time_s) for a in admitted] == [(1, 0, 1.5), (2, 0, 1.5)]
    assert adopted == ()
    d.scheduler.schedule(2.0)
    assert d.scheduler.take_admissions() == ((), ((2, 96),))


def test_a_workloads_reply_stops_where_it_is_told_to() -> None:
    """Whatever the model says: end-of-text is no end before it."""
    from dataclasses import replace

    d = drive(eos=[_eos_of(10, 4)])
    d.add(replace(make_request(1, 10, 50), reply_tokens=9))
    d.run()
    assert d.reasons[1] is FinishReason.STOP and len(d.outputs[1]) == 9
