"""What a receipt says of the weights that its policy used."""

from app.series.board import RequestRow
from app.series.terms import as_json, as_markdown, weighed
from engine.profiling.profile import load_profile
from engine.receipt import Receipt
from engine.request import BackendName, Request, RequestId, SamplingParams
from engine.routing.router import Pace, Router
from engine.weights import PolicyWeights

LABELS = {"cpu": "CPU", "gpu": "GPU"}


def receipt_of(policy: str, weights: PolicyWeights) -> Receipt:
    profile = load_profile("apple-m2-published")
    router = Router(
        policy, [(BackendName(b.name), b.name.upper(), "") for b in profile.backends], None, weights
    )
    for b in profile.backends:
        router.set_rates(BackendName(b.name), b.rates)
        router.set_pace(BackendName(b.name), Pace(b.steps, b.slots))
    return router.choose(Request(RequestId(1), (1, 2, 3), SamplingParams(max_new_tokens=8), 0.0), 0.0)


def row_of(receipt: Receipt) -> RequestRow:
    row = RequestRow(RequestId(1), 1, None, 3, 8, 0.0)
    row.receipt = receipt
    return row


def test_total_delay_says_its_weights_and_what_had_to_be_saved() -> None:
    row = row_of(receipt_of("total-delay", PolicyWeights(margin=0.1)))
    text = as_markdown(row, LABELS)
    assert "Policy total-delay. Weights: others=1, margin=0.1, guards=on, moves=on. Rates:" in text
    assert "| Margin: what going there must save |" in text
    data = as_json(row, 1.0)["receipt"]
    assert isinstance(data, dict) and data["weights"]["margin"] == 0.1


def test_other_policies_have_none() -> None:
    receipt = receipt_of("isolated-rates", PolicyWeights(margin=0.1))
    assert weighed(receipt) == ""
    text = as_markdown(row_of(receipt), LABELS)
    assert "Weights" not in text and "Margin:" not in text
    assert "Policy isolated-rates. Rates:" in text
