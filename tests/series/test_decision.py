"""The sentences, golden for requests 7 and 8, and one for every kind of policy."""

from dataclasses import replace

import pytest
from scenes import (
    CPU,
    GPU,
    LABELS,
    REQUEST_7,
    REQUEST_8,
    arrive,
    board,
    burst,
    candidate,
    receipt,
    warm_burst,
)

from app.series.arrivals import arrivals, crossing_lines, last_crossing, scores, steady
from app.series.decision import decide, margin, meaning, plain, receipt_sentence
from app.series.terms import (
    as_json,
    as_markdown,
    deciding,
    later_company,
    rates,
    terms,
    total_s,
    without_deciding,
)
from engine.events import BurstDone, RequestRouted
from engine.request import RequestId

UNSCORED = (candidate(CPU, score=None), candidate(GPU, score=None))


def reason(made, labels=LABELS):
    return plain(decide(made, 8, labels).reason)


def test_golden_scores():
    assert scores(REQUEST_7) == pytest.approx({"cpu": 3.118, "gpu": 3.027}, abs=5e-4)
    assert scores(REQUEST_8) == pytest.approx({"cpu": 3.118, "gpu": 3.444}, abs=5e-4)
    assert all(total_s(c) == pytest.approx(c.score_s) for c in REQUEST_8.candidates)


def test_golden_sentences():
    eight = decide(REQUEST_8, 8, LABELS)
    assert eight.headline == "Request 8 → CPU"
    assert plain(eight.reason) == (
        "Waiting for the GPU would cost 3.4 s, the CPU needs 3.1 s. Margin 0.326 s, 9.5 %."
    )
    assert [(s.text, s.backend) for s in eight.reason if s.backend] == [("3.4 s", GPU), ("3.1 s", CPU)]
    seven = decide(REQUEST_7, 7, LABELS)
    assert seven.headline == "Request 7 → GPU"
    assert plain(seven.reason) == (
        "The GPU is clear again in 3.0 s, the idle CPU would need 3.1 s. Margin 0.091 s, 2.9 %."
    )


def test_golden_receipt_sentence():
    assert plain(receipt_sentence(REQUEST_8, LABELS)) == (
        "The GPU still owes 872 tokens to seven other requests. With this one it would be clear after "
        "3.444 s. The idle CPU is done after 3.118 s, which is 0.326 s or 9.5 % sooner."
    )
    assert plain(receipt_sentence(REQUEST_7, LABELS)) == (
        "The idle CPU would be done after 3.118 s. The GPU still owes 752 tokens to six other requests. "
        "With this one it is clear after 3.027 s, which is 0.091 s or 2.9 % sooner."
    )


def test_golden_terms():
    cpu, gpu = (terms(c) for c in REQUEST_8.candidates)
    assert [t.tokens for t in gpu] == [80, 488, 384, 128]
    assert [round(t.seconds, 3) for t in gpu] == [0.031, 1.666, 1.311, 0.437]
    assert [round(t.seconds, 3) for t in cpu] == [0.274, 0, 0, 2.844]
    assert deciding(REQUEST_8) == "active"
    assert without_deciding(REQUEST_8, LABELS) == "With no active decode the GPU would have won by 1.34 s."
    assert rates(REQUEST_8, LABELS) == "Rates: CPU 73 tok/s in, 45 out; GPU 2,551 in, 293 out."
    assert deciding(REQUEST_7) == "own"


def test_only_the_policy_that_adds_the_terms_up_names_one():
    other = replace(REQUEST_8, policy="total-delay")
    assert deciding(other) is None and without_deciding(other, LABELS) == ""
    points = two_arrivals()
    crossing = last_crossing(points)
    assert crossing_lines(crossing, other, LABELS) == ["CPU is now the lower one"]


def test_both_idle_and_both_busy():
    idle = receipt(GPU, candidate(CPU), candidate(GPU))
    assert reason(idle).startswith("The GPU needs 0.4 s, the idle CPU would need 3.1 s.")
    busy = receipt(CPU, candidate(CPU, 1, 0, 20), candidate(GPU, 4, 6, 488))
    assert reason(busy).startswith("Waiting for the GPU would cost 4.8 s, for the CPU 3.6 s.")


def test_a_tie_says_so():
    tie = receipt(GPU, candidate(CPU, score=3.0), candidate(GPU, score=3.0))
    assert "A tie goes to the faster one." in reason(tie)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            receipt(GPU, *UNSCORED, policy="forced-gpu", unit=""),
            "The GPU takes every request: the policy is forced-gpu.",
        ),
        (
            receipt(CPU, *UNSCORED, policy="round-robin", unit=""),
            "It was the CPU's turn. Backends take turns, whatever they still have to do.",
        ),
        (
            receipt(
                CPU, candidate(CPU, score=0.0), candidate(GPU, 1, 0, score=1.0),
                policy="least-requests", unit="requests",
            ),
            "The CPU has 0 requests, the GPU 1. The fewest win.",
        ),
        (
            receipt(
                GPU, candidate(CPU, score=0.0, score_s=None), candidate(GPU, score=0.0, score_s=None),
                policy="least-requests", unit="requests",
            ),
            "Not calibrated yet, so only counts decide. The GPU has 0 requests, the CPU 0. "
            "A tie goes to the faster one.",
        ),
        (receipt(GPU, candidate(GPU)), "The GPU is the only backend that can take it."),
        (
            receipt(CPU, candidate(CPU), moved_from=GPU),
            "Moved here: the GPU stopped before it had read the prompt.",
        ),
        (
            receipt(CPU, candidate(CPU, score=38.1), candidate(GPU, score=40.2), policy="total-delay"),
            "Because of the policy. Margin 2.100 s, 5.2 %.",
        ),
        (  # a guard overruled the score
            receipt(GPU, candidate(CPU, score=38.1), candidate(GPU, score=40.2), policy="total-delay"),
            "Because of the policy.",
        ),
        (receipt(GPU, candidate(CPU, score=None), candidate(GPU)), "Because of the policy."),
    ],
)  # fmt: skip
def test_every_kind_of_policy_is_told(made, said):
    assert reason(made) == said
    assert plain(receipt_sentence(made, LABELS)) == said
    assert meaning(made)


def test_numbered_backends_are_names():
    assert "Waiting for CPU 2 would cost" in reason(REQUEST_8, {"cpu": "CPU 1", "gpu": "CPU 2"})


def test_without_any_score_nothing_is_drawn_as_zero():
    none = [candidate(n, score=None, score_s=None, prefill_rate=None, decode_rate=None) for n in (CPU, GPU)]
    made = receipt(CPU, *none, policy="round-robin", unit="")
    assert scores(made) == {} and margin(made) is None
    assert meaning(made) == "no scores: the backends are not calibrated"
    assert rates(made, LABELS).startswith("Rates: n/a")
    assert total_s(none[0]) is None and deciding(made) is None


def two_arrivals():
    events = [burst(8)]
    for made in (REQUEST_7, REQUEST_8):
        events += [arrive(made.request_id), RequestRouted(made)]
    return arrivals(board(*events).run_rows())


def test_the_crossing_is_found_and_explained():
    points = two_arrivals()
    crossing = last_crossing(points)
    assert (crossing.index, crossing.higher, crossing.lower) == (0, "gpu", "cpu")
    assert crossing.score == pytest.approx(3.118, abs=5e-4)
    assert crossing.part == pytest.approx(0.0914 / (0.0914 + 0.3256), abs=1e-3)
    assert crossing_lines(crossing, points[1].receipt, LABELS) == [
        "4 active and 3 queued on the GPU:",
        "1,000 tokens at 293 tok/s",
        "now outlast the idle CPU",
    ]
    assert last_crossing(points[:1]) is None


def test_an_idle_backend_is_labelled_once():
    points = arrivals(warm_burst(8).run_rows())
    assert steady(points, "cpu") == pytest.approx(3.118, abs=5e-4)
    assert steady(points, "gpu") is None


def test_only_the_last_are_drawn():
    assert len(arrivals(warm_burst(250).run_rows())) == 200
    typed = [
        e
        for n in range(1, 31)
        for e in (arrive(n, n, None), RequestRouted(receipt(CPU, candidate(CPU), request_id=n)))
    ]
    assert [a.number for a in arrivals(board(*typed).shown_rows())] == list(range(15, 31))


def test_a_prompt_pushes_the_burst_away_only_once_it_is_over():
    shown = board(burst(1), arrive(1), arrive(2, 1.0, None))
    assert [r.number for r in shown.shown_rows()] == [1]
    shown.apply([BurstDone("run", False, {})])
    assert [r.number for r in shown.shown_rows()] == [2]


def test_receipts_export():
    made = receipt(CPU, *REQUEST_8.candidates, request_id=8)
    shown = board(burst(9), arrive(8, 0.35), RequestRouted(made), arrive(9, 0.4))
    row = shown.requests[RequestId(8)]
    text = as_markdown(row, LABELS, "Apple M2")
    assert "### Request 8 → CPU" in text and "**EMULATED** Apple M2" in text
    assert "| Decode, active | 0 | 0.000 | 488 | 1.666 |" in text
    assert as_json(row, 1.0)["receipt"]["chosen"] == "cpu"
    assert as_json(row, 1.0)["actual"]["e2e_s"] is None
    assert later_company(row, shown.run_rows()) == 0
