"""The score of every candidate at every arrival: what the routing chart draws. No Qt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.series.board import RequestRow
from app.series.words import figure, plural
from engine.receipt import Candidate, Receipt
from engine.request import RequestId

MOST = 200  # arrivals drawn; a receipt holds every figure of the older ones
TYPED = 16  # typed prompts shown where there was no burst


@dataclass(frozen=True, slots=True)
class Arrival:
    request_id: RequestId
    number: int
    receipt: Receipt
    scores: dict[str, float]  # backend -> score; a backend without a score is absent

    @property
    def chosen(self) -> str:
        return self.receipt.chosen


@dataclass(frozen=True, slots=True)
class Crossing:
    """Between arrivals `index` and `index + 1`, at `part` of the way, `higher` outgrew `lower`."""

    index: int
    part: float
    score: float
    higher: str
    lower: str


def scores(receipt: Receipt) -> dict[str, float]:
    """The policy's own scores, or, where it has none (forced, round-robin), the isolated prices."""
    own = {c.backend: c.score for c in receipt.candidates if c.score is not None}
    if own:
        return own
    return {c.backend: c.score_s for c in receipt.candidates if c.score_s is not None}


def own_scores(receipt: Receipt) -> bool:
    return any(c.score is not None for c in receipt.candidates)


def unit(receipt: Receipt) -> str:
    return receipt.unit if own_scores(receipt) else "s"


def arrivals(rows: Sequence[RequestRow]) -> list[Arrival]:
    """Routed requests in order of arrival, the last ones where there are too many to draw."""
    routed = [r for r in rows if r.receipt is not None]
    kept = routed[-(MOST if routed and routed[-1].run_id is not None else TYPED) :]
    return [
        Arrival(r.request_id, r.number, r.receipt, scores(r.receipt)) for r in kept if r.receipt is not None
    ]


def last_crossing(points: Sequence[Arrival]) -> Crossing | None:
    """The newest place where the two cheapest candidates changed order."""
    for index in range(len(points) - 2, -1, -1):
        before, after = points[index].scores, points[index + 1].scores
        shared = sorted(set(before) & set(after), key=lambda name: after[name])
        for lower, higher in zip(shared, shared[1:], strict=False):
            gap, next_gap = before[lower] - before[higher], after[higher] - after[lower]
            if gap > 0 and next_gap > 0:
                part = gap / (gap + next_gap)
                score = before[higher] + part * (after[higher] - before[higher])
                return Crossing(index, part, score, higher, lower)
    return None


def crossing_lines(crossing: Crossing, receipt: Receipt, labels: Mapping[str, str]) -> list[str]:
    """Why the lines cross, in one to three short lines after the words "The lines cross"."""
    higher, lower = receipt.candidate(crossing.higher), receipt.candidate(crossing.lower)
    top, low = labels.get(crossing.higher, crossing.higher), labels.get(crossing.lower, crossing.lower)
    priced = receipt.policy == "isolated-rates" or not own_scores(receipt)
    if higher is None or lower is None or not priced or not higher.decode_rate:
        return [f"{low} is now the lower one"]
    company = f"{higher.active} active and {higher.queued} queued on the {top}:"
    if not higher.active + higher.queued:
        company = f"Nothing else on the {top}, yet its"
    work = f"{figure(higher.decode_tokens)} tokens at {figure(higher.decode_rate)} tok/s"
    return [company, work, f"now outlast {_other(lower, low)}"]


def _other(candidate: Candidate, label: str) -> str:
    if not candidate.active + candidate.queued:
        return f"the idle {label}"
    return f"{figure(candidate.decode_tokens)} {plural(candidate.decode_tokens, 'token')} on the {label}"


def steady(points: Sequence[Arrival], backend: str) -> float | None:
    """The score of a backend that stood idle for every arrival, if there are enough to say so."""
    seen = [p.receipt.candidate(backend) for p in points]
    if len(points) < 3 or any(c is None or c.active + c.queued for c in seen):
        return None
    values = [p.scores.get(backend) for p in points]
    first = values[0]
    if first is None or any(v is None or abs(v - first) > 1e-6 for v in values):
        return None
    return first
