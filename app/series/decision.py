"""The last decision in words: a headline, a reason, the meaning of the scores. No Qt.

A sentence is a row of `Span`s, so that a painter can colour each backend's figure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from app.series.arrivals import own_scores, scores
from app.series.words import apart, figure, percent, plural, seconds, spelled
from engine.receipt import Candidate, Receipt

ARROW = "→"
CLEAR_POLICIES = ("isolated-rates", "batched-clear")


@dataclass(frozen=True, slots=True)
class Span:
    text: str
    backend: str | None = None  # its colour, and 600
    muted: bool = False


Sentence = tuple[Span, ...]


def plain(sentence: Sentence) -> str:
    return "".join(s.text for s in sentence)


@dataclass(frozen=True, slots=True)
class Decision:
    number: int
    backend: str
    label: str
    reason: Sentence

    @property
    def headline(self) -> str:
        return f"Request {self.number} {ARROW} {self.label}"


def decide(receipt: Receipt, number: int, labels: Mapping[str, str]) -> Decision:
    label = labels.get(receipt.chosen, receipt.chosen)
    return Decision(number, receipt.chosen, label, _reason(receipt, labels))


def article(label: str) -> str:
    """`the GPU`, but `CPU 1`: a numbered backend is a name of its own."""
    return label if label[-1:].isdigit() else f"the {label}"


def opening(label: str) -> str:
    text = article(label)
    return text[0].upper() + text[1:]


def rejected(receipt: Receipt) -> Candidate | None:
    """The best of the candidates that were not chosen; by price where the policy gave no score."""
    values = scores(receipt)
    others = [c for c in receipt.candidates if c.backend != receipt.chosen]
    if not others:
        return None
    return min(others, key=lambda c: values.get(c.backend, float("inf")))


def margin(receipt: Receipt) -> tuple[float, float] | None:
    """How much sooner the chosen one is, in the unit of the scores and in percent of the other."""
    other, values = rejected(receipt), scores(receipt)
    if other is None or other.backend not in values or receipt.chosen not in values:
        return None
    gap = values[other.backend] - values[receipt.chosen]
    return gap, 100 * gap / values[other.backend] if values[other.backend] else 0.0


def _reason(receipt: Receipt, labels: Mapping[str, str]) -> Sentence:
    chosen, other = receipt.candidate(receipt.chosen), rejected(receipt)
    label = labels.get(receipt.chosen, receipt.chosen)
    if receipt.moved_from is not None and receipt.candidate(receipt.moved_from) is not None:
        return (Span(receipt.reason),)  # it runs: the request left its queue for a better place
    if receipt.moved_from is not None:
        gone = labels.get(receipt.moved_from, receipt.moved_from)
        return (Span(f"Moved here: {article(gone)} stopped before it had read the prompt."),)
    if chosen is None:
        return (Span(receipt.reason),)
    if receipt.policy.startswith("forced"):
        return (Span(f"{opening(label)} takes every request: the policy is {receipt.policy}."),)
    if other is None:
        return (Span(f"{opening(label)} is the only backend that can take it."),)
    other_label = labels.get(other.backend, other.backend)
    if receipt.policy == "round-robin":
        return (
            Span(f"It was {article(label)}'s turn. "),
            Span("Backends take turns, whatever they still have to do.", muted=True),
        )
    gap = margin(receipt)
    if receipt.unit == "requests":
        return _counted(receipt, chosen, other, label, other_label)
    if receipt.unit != "s" or gap is None or gap[0] < 0:
        return (Span(receipt.reason),)  # the policy overruled its score: only it knows why
    if receipt.policy in CLEAR_POLICIES:
        return _clear(receipt, chosen, other, label, other_label)
    return (Span(receipt.reason), _margin_span(receipt)) if gap[0] else (Span(receipt.reason),)


def _margin_span(receipt: Receipt) -> Span:
    gap, share = margin(receipt) or (0.0, 0.0)
    if gap == 0:
        return Span(" A tie goes to the faster one.", muted=True)
    return Span(f" Margin {seconds(gap, 3)}, {percent(share)}.", muted=True)


def _pair(receipt: Receipt, chosen: Candidate, other: Candidate) -> tuple[str, str]:
    values = scores(receipt)
    mine, its = values[chosen.backend], values[other.backend]
    decimals = apart(mine, its)
    return seconds(mine, decimals), seconds(its, decimals)


def _clear(receipt: Receipt, chosen: Candidate, other: Candidate, label: str, other_label: str) -> Sentence:
    mine, its = _pair(receipt, chosen, other)
    if other.active + other.queued:
        busy = bool(chosen.active + chosen.queued)
        return (
            Span(f"Waiting for {article(other_label)} would cost "),
            Span(its, other.backend),
            Span(f", for {article(label)} " if busy else f", {article(label)} needs "),
            Span(mine, chosen.backend),
            Span("."),
            _margin_span(receipt),
        )
    busy = bool(chosen.active + chosen.queued)
    return (
        Span(f"{opening(label)} is clear again in " if busy else f"{opening(label)} needs "),
        Span(mine, chosen.backend),
        Span(f", the idle {other_label} would need "),
        Span(its, other.backend),
        Span("."),
        _margin_span(receipt),
    )


def _counted(receipt: Receipt, chosen: Candidate, other: Candidate, label: str, other_label: str) -> Sentence:
    rated = all(c.score_s is not None for c in receipt.candidates)
    mine, its = chosen.active + chosen.queued, other.active + other.queued
    lead = "" if rated else "Not calibrated yet, so only counts decide. "
    return (
        Span(f"{lead}{opening(label)} has "),
        Span(figure(mine), chosen.backend),
        Span(f" {plural(mine, 'request')}, {article(other_label)} "),
        Span(figure(its), other.backend),
        Span("."),
        Span(" The fewest win." if mine != its else " A tie goes to the faster one.", muted=True),
    )


def meaning(receipt: Receipt | None) -> str:
    """What the y axis of the routing chart counts, and who wins."""
    if receipt is None:
        return "the score of each backend at each arrival"
    if not own_scores(receipt):
        if not scores(receipt):
            return "no scores: the backends are not calibrated"
        return f"seconds until clear at isolated rates, for comparison; {receipt.policy} ignores it"
    return {
        "isolated-rates": "seconds until each backend would be clear, this request included; "
        "the lower score wins",
        "batched-clear": "seconds until each backend would be clear, at batched prices; the lower wins",
        "total-delay": "seconds of waiting, summed over everybody, with this request there; the lower wins",
        "least-requests": "requests on each backend at arrival; the fewest win",
    }.get(receipt.policy, f"score in {receipt.unit or 'points'}; the lower one wins")


def estimate_words(tokens: int, error: float | None) -> tuple[str, ...]:
    """The estimated length of a reply and the mean relative error of such estimates, in ever fewer words."""
    out = f"{figure(tokens)} {plural(tokens, 'token')} out expected"
    if error is None:
        return (f"{out}, error not known yet", out, f"{figure(tokens)} out expected")
    off = percent(100 * error, 0)
    return (f"{out}, such estimates are {off} off", f"{out}, {off} off", f"{figure(tokens)} out, {off} off")


SHORT = {
    "isolated-rates": ("seconds until each backend is clear; lower wins", "seconds until clear"),
    "batched-clear": ("seconds until each backend is clear; lower wins", "seconds until clear"),
    "total-delay": ("seconds of waiting, summed over everybody; lower wins", "seconds of waiting, summed"),
    "least-requests": ("requests on each backend",),
}


def meanings(receipt: Receipt) -> tuple[str, ...]:
    """`meaning`, and the same in fewer words for where it does not fit."""
    if not own_scores(receipt):
        return (meaning(receipt), "no scores")
    return (meaning(receipt), *SHORT.get(receipt.policy, ("the lower wins",)))


def receipt_sentence(receipt: Receipt, labels: Mapping[str, str]) -> Sentence:
    """The receipt's running text: what the other one owes, what this one owes, what that saves."""
    chosen, other, gap = receipt.candidate(receipt.chosen), rejected(receipt), margin(receipt)
    by_price = receipt.policy in CLEAR_POLICIES and receipt.moved_from is None
    if chosen is None or other is None or gap is None or not by_price:
        return _reason(receipt, labels)
    values = scores(receipt)
    owed = _owes(other, labels, values, "would be" if other.active + other.queued else "would be done")
    mine = _owes(chosen, labels, values, "is" if chosen.active + chosen.queued else "is done")
    share = f", which is {seconds(gap[0], 3)} or {percent(gap[1])} sooner."
    return (*owed, Span(". "), *mine, Span(share if gap[0] > 0 else "."))


def _owes(
    candidate: Candidate, labels: Mapping[str, str], values: Mapping[str, float], verb: str
) -> Sentence:
    label = labels.get(candidate.backend, candidate.backend)
    after = Span(seconds(values[candidate.backend], 3), candidate.backend)
    others = candidate.active + candidate.queued
    if not others:
        return (Span(f"The idle {label} {verb} after "), after)
    tokens = candidate.active_decode_tokens + candidate.queued_decode_tokens
    return (
        Span(
            f"{opening(label)} still owes {figure(tokens)} {plural(tokens, 'token')} to "
            f"{spelled(others)} other {plural(others, 'request')}. With this one it {verb} clear after "
        ),
        after,
    )
