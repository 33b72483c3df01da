"""What the router saves itself changes nothing: the short ways give what the plain ones give."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kv.prefix import extend_chain, restorable_blocks, root_hash
from engine.profiling.step_time import StepTimeModel
from engine.request import BackendName
from engine.routing.forecast import Job, Track, all_on_the_wall, forecast, on_the_wall
from engine.routing.mirror import Mirror, Sent
from engine.routing.pricing import Outlook, prices
from tests.builders import MEASURED, make_request, unlike
from tests.routing.plain_forecast import plain_forecast

LINE = StepTimeModel(((1, 0.004), (4, 0.010)), 1e-6, 2e-4, 1e-7, 1e-3, 2e-3)
MODELS = st.sampled_from([LINE, MEASURED])
many = settings(max_examples=120, deadline=None, derandomize=True, database=None)


@st.composite
def loads(draw: st.DrawFn) -> tuple[int, int, list[Job], list[Job], int]:
    """(slots, token budget, active, queue, free blocks), as odd as they come."""
    slots = draw(st.integers(1, 6))
    rng = random.Random(draw(st.integers(0, 10_000)))
    active = [
        Job(i, rng.choice([0, 0, rng.randint(1, 600)]), rng.randint(1, 90), rng.randint(0, 500), 9)
        for i in range(draw(st.integers(0, slots)))
    ]
    queue, ready_s = [], 0.0
    for i in range(draw(st.integers(0, 20))):
        ready_s += rng.choice([0.0, 0.0, 0.0, rng.uniform(0.0, 0.4)])
        prefill, decode, blocks = rng.randint(0, 600), rng.randint(1, 90), rng.randint(0, 40)
        queue.append(Job(100 + i, prefill, decode, rng.randint(0, 500), blocks, ready_s, rng.random()))
    return slots, draw(st.sampled_from([16, 64, 512])), active, queue, draw(st.sampled_from([40, 90, 9_999]))


@many
@given(MODELS, loads(), st.sampled_from([1.0, 1.3]))
def test_jumping_gives_what_walking_every_step_gives(
    model: StepTimeModel, load: tuple[int, int, list[Job], list[Job], int], factor: float
) -> None:
    slots, budget, active, queue, free = load
    first, finish = plain_forecast(model, slots, budget, active, queue, free, factor)
    cast = forecast(model, slots, budget, active, queue, free, factor)
    assert cast.first_s == pytest.approx(first, rel=1e-9)
    assert cast.finish_s == pytest.approx(finish, rel=1e-9)
    assert cast.clear_s == max(cast.finish_s.values(), default=0.0)


@many
@given(MODELS, loads(), st.integers(0, 20))
def test_going_on_from_a_shared_beginning_changes_nothing(
    model: StepTimeModel, load: tuple[int, int, list[Job], list[Job], int], shared: int
) -> None:
    slots, budget, active, queue, free = load
    whole = forecast(model, slots, budget, active, queue, free)
    track = Track(model, slots, budget, active, free)
    track.admit(queue[:shared])
    track.ended([Job(-5, 300, 40, 0, 3)])  # another end leaves the track where it is
    assert track.ended(queue[shared:]) == whole


@many
@given(MODELS, loads(), loads(), st.booleans(), st.integers(1, 200))
def test_prices_are_those_of_forecasts_made_one_by_one(
    model: StepTimeModel,
    here: tuple[int, int, list[Job], list[Job], int],
    there: tuple[int, int, list[Job], list[Job], int],
    is_head: bool,
    p90: int,
) -> None:
    new, since_s, now_s = Job(99, 70, 40, 30, 6, came_s=7.8), 0.01, 8.0
    outlooks = []
    for (slots, budget, active, queue, free), head in ((here, is_head), (there, False)):
        outlooks.append(
            Outlook(model, slots, budget, active, queue, free, new, p90, since_s, now_s, is_head=head)
        )
    for place, price in enumerate(prices(outlooks)):
        casts, longs = [], []
        for i, o in enumerate(outlooks):
            behind = [] if i != place else [new]
            queue = [*behind, *o.queue] if o.is_head else [*o.queue, *behind]
            long = [replace(j, decode=max(p90, j.decode)) if j is new else j for j in queue]
            casts.append(forecast(model, o.slots, o.token_budget, o.active, queue, o.free_blocks))
            longs.append(forecast(model, o.slots, o.token_budget, o.active, long, o.free_blocks))
        chi = model.interference
        both_s = min(cast.clear_s * (1 + chi) for cast in casts)

        def wall_s(work_s: float, chi: float = chi, both_s: float = both_s) -> float:
            return on_the_wall(work_s, chi, both_s) - since_s

        ends = [[wall_s(end) for end in cast.finish_s.values()] for cast in casts]
        jobs = [[*o.active, *o.queue, *([new] if i == place else [])] for i, o in enumerate(outlooks)]
        waits = [
            wall_s(cast.first_s[j.key]) + now_s - j.came_s
            for cast, those in zip(casts, jobs, strict=True)
            for j in those
            if cast.first_s[j.key] > 0
        ]
        assert price.delay_s == pytest.approx(sum(map(sum, ends)), rel=1e-9)
        assert price.ttft_s == pytest.approx(wall_s(casts[place].first_s[99]), rel=1e-9)
        assert price.e2e_s == pytest.approx(wall_s(casts[place].finish_s[99]), rel=1e-9)
        assert price.p90_s == pytest.approx(wall_s(longs[place].clear_s), rel=1e-9)
        assert price.clear_s == pytest.approx(wall_s(casts[place].clear_s), rel=1e-9)
        assert price.worst_ttft_s == pytest.approx(max(waits), rel=1e-9)
        assert price.all_clear_s == pytest.approx(max(map(max, filter(None, ends))), rel=1e-9)


@many
@given(st.lists(st.floats(0, 1e3), max_size=8), st.floats(0, 0.5), st.floats(0, 1e3))
def test_many_wall_times_at_once(works_s: list[float], chi: float, both_s: float) -> None:
    assert all_on_the_wall(works_s, chi, both_s) == [on_the_wall(w, chi, both_s) for w in works_s]


@many
@given(st.integers(1, 200), st.integers(0, 12), st.integers(0, 12), st.sets(st.integers(0, 11)))
def test_an_opening_says_what_the_whole_chain_says(
    prompt_tokens: int, stored: int, coming: int, gone: set[int]
) -> None:
    """Any part of the prompt may be stored or on its way, with holes where blocks were evicted."""
    request = make_request(1, unlike(1, prompt_tokens), 8)
    mirror = Mirror(BackendName("gpu"), "GPU", root_hash("salt"), None)
    whole = extend_chain([], mirror.root, request.prompt, restorable_blocks(prompt_tokens))
    mirror.hashes.update(h for i, h in enumerate(whole[:stored]) if i not in gone)
    earlier = make_request(2, request.prompt, 8)
    mirror.book(Sent(earlier, whole[:coming], 0, 0, 0.0, 0.0))
    opening = mirror.opening(request)
    assert opening == whole[: len(opening)]
    assert mirror.match_tokens(opening) == mirror.match_tokens(whole)
    assert mirror.coming_tokens(opening) == mirror.coming_tokens(whole)
