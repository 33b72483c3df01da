"""Jobs of waiting requests are kept from step to step: what is kept must be what would be worked out."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kv.prefix import root_hash
from engine.request import BackendName, Request
from engine.routing.length import LengthEstimator, Remaining
from engine.routing.mirror import Mirror, Sent, Work
from engine.step_report import BackendLoad, RequestLoad
from tests.builders import make_request

WAITING = 6
BUDGET = 64


def requests() -> list[Request]:
    return [make_request(i, 20 + 40 * (i % 3), BUDGET, tag="label" if i % 2 else "") for i in range(WAITING)]


def sent_to(mirror: Mirror, asked: list[Request]) -> None:
    for request in asked:
        mirror.book(Sent(request, [], 0, 16 * (request.id % 3), 1.0, 0.5 + 0.01 * request.id))


def mirror() -> Mirror:
    return Mirror(BackendName("gpu"), "GPU", root_hash("salt"), None)


def true_left(request: Request, generated: int) -> Remaining:
    return Remaining(float(3 + request.id), float(3 + request.id))


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 2), st.integers(-1, 3)),  # blocks found, slots taken
        st.tuples(st.just("learn"), st.integers(0, WAITING - 1), st.integers(1, BUDGET)),
        st.tuples(st.just("ask"), st.integers(0, 0), st.integers(0, 0)),
        st.tuples(st.just("ask the truth"), st.integers(0, 0), st.integers(0, 0)),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=80, deadline=None)
@given(EVENTS)
def test_a_kept_job_is_the_one_that_would_be_made_anew(events: list[tuple[str, int, int]]) -> None:
    asked, lengths, keeps = requests(), LengthEstimator(), mirror()
    sent_to(keeps, asked)
    handed_out: list[tuple[Work, str]] = []
    for number, (event, a, b) in enumerate(events):
        now_s = 2.0 + number
        if event == "publish":
            loads = []
            for request in asked:
                found = 16 * a if request.prompt_tokens > 16 * a else 0
                loads.append(
                    RequestLoad(
                        request.id,
                        request.id if request.id < b else -1,
                        request.prompt_tokens,
                        found,
                        request.prompt_tokens - found,
                        1 if request.id < b else 0,
                        BUDGET - (request.id < b),
                    )
                )
            keeps.load, keeps.published_s = BackendLoad(tuple(loads), 100, 400), now_s
        elif event == "learn":
            lengths.observe(asked[a], b, censored=False)
        else:
            fresh = mirror()
            sent_to(fresh, asked)
            fresh.load, fresh.published_s = keeps.load, keeps.published_s
            if event == "ask":
                kept = keeps.work(now_s, lengths.remaining, None, lengths.edition)
                assert kept == fresh.work(now_s, lengths.remaining)
            else:
                kept = keeps.work(now_s, true_left)
                assert kept == fresh.work(now_s, true_left)
            handed_out.append((kept, repr(kept)))
    for work, was in handed_out:
        assert repr(work) == was  # a forecast made earlier keeps the jobs that it was made with
