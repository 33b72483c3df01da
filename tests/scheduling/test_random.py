"""Random workloads: whatever the schedule, every request says what it would have said alone."""

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from engine.kv.manager import blocks_for
from engine.request import Request, RequestId
from engine.scheduling.policies import POLICIES
from tests.builders import Drive, drive, make_request, sequential

EOS = [5, 50]
HEADS = [tuple(range(100 * k, 100 * k + 45)) for k in range(3)]


@st.composite
def requests(draw: st.DrawFn, request_id: int) -> Request:
    head = draw(st.sampled_from(HEADS))[: draw(st.integers(0, 45))]
    tail = draw(st.integers(1, 40))
    own = draw(st.sampled_from([1, 2, request_id + 10]))  # often the same tail as another request
    prompt = (*head, *(9_000 + own * 100 + i for i in range(tail)))
    return make_request(request_id, prompt, draw(st.integers(1, 24)), ignore_eos=draw(st.booleans()))


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Drive, list[Request]]:
    slots = draw(st.integers(1, 5))
    budget = draw(st.integers(slots, 70))
    work = [draw(requests(i)) for i in range(1, draw(st.integers(1, 9)) + 1)]
    most = max(blocks_for(r.prompt_tokens + r.sampling.max_new_tokens) for r in work)
    blocks = most + draw(st.integers(0, 12))
    policy = draw(st.sampled_from(list(POLICIES)))
    return drive(policy, slots=slots, budget=budget, blocks=blocks, eos=EOS), work


@settings(max_examples=80, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(scenes(), st.data())
def test_every_schedule_says_the_same(scene: tuple[Drive, list[Request]], data: st.DataObject) -> None:
    d, work = scene
    to_come, aborted = list(work), set[int]()
    while to_come or not d.scheduler.idle:
        action = data.draw(st.sampled_from(["step", "step", "add", "add", "abort", "drop"]))
        if action == "add" and to_come:
            request = to_come.pop(0)
            # A router may believe anything: the estimate must never change what is computed.
            d.add(request, estimate=data.draw(st.sampled_from([0, 16, request.prompt_tokens - 1])))
        elif action == "abort":
            victim = data.draw(st.sampled_from(work)).id
            if d.scheduler.abort(RequestId(victim)):
                aborted.add(victim)
        elif action == "drop":
            d.scheduler.kv.drop_unowned()
        elif not d.scheduler.idle:
            assert d.step().rows, "requests are waiting and the step is empty"
        elif to_come:
            d.add(to_come.pop(0))
        d.scheduler.check_integrity()
        _check_load(d)
    for request in work:
        tokens, reason = sequential(request, EOS)
        if request.id in aborted:
            said = d.outputs.get(request.id, [])
            assert said == tokens[: len(said)] and request.id not in d.reasons
        else:
            assert (d.outputs[request.id], d.reasons[request.id]) == (tokens, reason)
    pool = d.scheduler.kv.pool
    assert pool.unused == d.scheduler.kv.available == pool.num_blocks  # none lost


@settings(max_examples=40, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(scenes())
def test_nothing_is_computed_twice_while_there_is_room(scene: tuple[Drive, list[Request]]) -> None:
    """All arrive together and the pool holds them all: each distinct whole block is computed once."""
    small, work = scene
    policy = next(n for n, p in POLICIES.items() if type(small.scheduler._policy) is p)
    d = drive(policy, slots=small.scheduler.slots, budget=small.budget, blocks=600)
    d.add(*work)
    d.run()
    # A prompt that ends with a whole block computes that one for itself, and may leave it to others.
    heads = [r.prompt[: 16 * i] for r in work for i in range(1, (r.prompt_tokens - 1) // 16 + 1)]
    most = sum(r.prompt_tokens for r in work) - 16 * (len(heads) - len(set(heads)))
    assert d.prefill_tokens <= most
    assert sum(d.cached.values()) == sum(r.prompt_tokens for r in work) - d.prefill_tokens


def _check_load(d: Drive) -> None:
    """What is published is what is true."""
    load = d.scheduler.load()
    kv = d.scheduler.kv
    assert load.free_blocks == kv.available
    active = {a.request.id: a for a in d.scheduler._active}
    told = {r.request_id: r for r in load.requests}
    assert len(told) == len(load.requests)
    assert set(told) == set(active) | {w.request.id for w in d.scheduler._waiting}
    for request_id, r in told.items():
        if request_id in active:
            a = active[request_id]
            assert (r.slot, r.generated) == (a.slot, len(d.outputs.get(request_id, [])))
            assert r.decode_remaining == a.request.sampling.max_new_tokens - r.generated
            assert r.prefill_remaining == (0 if r.generated else a.request.prompt_tokens - a.computed)
        else:
            w = next(w for w in d.scheduler._waiting if w.request.id == request_id)
            truth = kv.match_tokens(w.chain)
            assert r.stale_estimate == (truth < w.estimate)
            assert r.cached_tokens == min(truth, w.estimate)
            assert r.prefill_remaining == r.prompt_tokens - w.estimate
