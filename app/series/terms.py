"""A receipt's price taken apart: seconds = tokens / rate, term by term and backend by backend. No Qt."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from app.series.board import RequestRow
from app.series.decision import article, decide, plain, receipt_sentence, rejected
from app.series.rows import PRICED, e2e_s, error_percent, predicted_s, priced_only
from app.series.words import figure, seconds
from engine.receipt import Candidate, Receipt

PRICE_POLICY = "isolated-rates"  # the policy whose score is the sum of these terms
NAMES = {
    "prefill": "Prefill, queued and own",
    "active": "Decode, active",
    "queued": "Decode, queued",
    "own": "Decode, own",
}


@dataclass(frozen=True, slots=True)
class Term:
    kind: str  # "prefill", "active", "queued", "own"
    tokens: int
    seconds: float | None  # None while not calibrated


def terms(candidate: Candidate) -> tuple[Term, ...]:
    """The four terms in the order in which the bar stacks them."""

    def term(kind: str, tokens: int, rate: float | None) -> Term:
        return Term(kind, tokens, tokens / rate if rate else None)

    return (
        term("prefill", candidate.prefill_tokens, candidate.prefill_rate),
        term("active", candidate.active_decode_tokens, candidate.decode_rate),
        term("queued", candidate.queued_decode_tokens, candidate.decode_rate),
        term("own", candidate.own_decode_tokens, candidate.decode_rate),
    )


def total_s(candidate: Candidate) -> float | None:
    parts = [t.seconds for t in terms(candidate)]
    return None if any(p is None for p in parts) else sum(p for p in parts if p is not None)


def deciding(receipt: Receipt) -> str | None:
    """The term that counts most against the best rejected candidate; None if these prices did not decide."""
    chosen, other = receipt.candidate(receipt.chosen), rejected(receipt)
    if chosen is None or other is None or receipt.policy != PRICE_POLICY:
        return None
    mine, its = total_s(chosen), total_s(other)
    if mine is None or its is None or its < mine:
        return None
    gaps = {
        b.kind: (b.seconds or 0.0) - (a.seconds or 0.0)
        for a, b in zip(terms(chosen), terms(other), strict=True)
    }
    return max(gaps, key=lambda kind: gaps[kind])


def without_deciding(receipt: Receipt, labels: Mapping[str, str]) -> str:
    """What the choice would have been had the deciding term been nothing on both sides."""
    kind, chosen, other = deciding(receipt), receipt.candidate(receipt.chosen), rejected(receipt)
    if kind is None or chosen is None or other is None:
        return ""

    def rest(candidate: Candidate) -> float:
        return sum(t.seconds or 0.0 for t in terms(candidate) if t.kind != kind)

    gap = rest(chosen) - rest(other)
    winner = other if gap > 0 else chosen
    words = {"prefill": "prefill", "active": "active decode", "queued": "queued decode", "own": "own decode"}
    label = article(labels.get(winner.backend, winner.backend))
    would = "would have won" if gap > 0 else "would still have won"
    return f"With no {words[kind]} {label} {would} by {seconds(abs(gap), 2)}."


def rates(receipt: Receipt, labels: Mapping[str, str]) -> str:
    """`Rates: CPU 73 tok/s in, 45 out; GPU 2,551 in, 293 out.`"""
    known = [c for c in receipt.candidates if c.prefill_rate and c.decode_rate]
    known.sort(key=lambda c: c.decode_rate or 0.0)  # slowest first, as everywhere in the window
    if not known:
        return "Rates: n/a, the backends are not calibrated."
    parts = [
        f"{labels.get(c.backend, c.backend)} {figure(c.prefill_rate)}{' tok/s' if i == 0 else ''} in, "
        f"{figure(c.decode_rate)} out"
        for i, c in enumerate(known)
    ]
    return f"Rates: {'; '.join(parts)}."


def weighed(receipt: Receipt) -> str:
    """The weights of the policy, as the settings and `--weights` have them; "" where it has none."""
    return "" if receipt.weights is None else f"Weights: {str(receipt.weights).replace(',', ', ')}."


def later_company(row: RequestRow, rows: Sequence[RequestRow]) -> int:
    """Requests that arrived at the same backend after this one and before it was done."""
    end = row.finished_s if row.finished_s is not None else float("inf")
    return sum(r.backend == row.backend and row.arrival_s < r.arrival_s < end for r in rows)


def as_json(row: RequestRow, now_s: float) -> dict[str, object]:
    """The receipt with what happened afterwards, as plain data."""
    receipt = row.receipt
    return {
        "format": "offramp-receipt",
        "version": 1,
        "number": row.number,
        "run_id": row.run_id,
        "receipt": asdict(receipt) if receipt else None,
        "actual": {
            "state": row.state.value,
            "reason": row.reason.value if row.reason else None,
            "cached_tokens": row.cached_tokens,
            "output_tokens": row.output_tokens,
            "e2e_s": e2e_s(row, now_s) if row.finished_s is not None else None,
            "predicted_s": predicted_s(row),
            "error_percent": error_percent(row),
        },
    }


def as_markdown(row: RequestRow, labels: Mapping[str, str], emulation: str = "") -> str:
    """The receipt as a heading, a sentence and a table. `emulation` marks emulated hardware."""
    receipt = row.receipt
    if receipt is None:
        return ""
    shown = sorted(receipt.candidates, key=lambda c: total_s(c) or 0.0)
    head = "| Term |" + "".join(f" {labels.get(c.backend, c.backend)}, tokens | s |" for c in shown)
    lines = [
        f"### {decide(receipt, row.number, labels).headline}",
        *([f"**EMULATED** {emulation}".rstrip()] if emulation else []),
        plain(receipt_sentence(receipt, labels)),
        "",
        head,
        "|---|" + "---:|---:|" * len(shown),
    ]
    for parts in zip(*(terms(c) for c in shown), strict=True):
        cells = "".join(f" {figure(t.tokens)} | {figure(t.seconds, 3)} |" for t in parts)
        lines.append(f"| {NAMES[parts[0].kind]} |{cells}")
    lines.append("| Score |" + "".join(f" | {figure(total_s(c), 3)} |" for c in shown))
    for name, values in (
        ("Forecast of its TTFT", [c.ttft_s for c in shown]),
        ("Forecast of its E2E", [c.e2e_s for c in shown]),
        ("Waiting of everybody, summed", [c.delay_s for c in shown]),
        ("Margin: what going there must save", [c.margin_s for c in shown]),
    ):
        if any(v is not None for v in values):
            lines.append(f"| {name} |" + "".join(f" | {figure(v, 3)} |" for v in values))
    actual = None if row.finished_s is None else row.finished_s - row.arrival_s
    lines += ["", f"Policy {receipt.policy}. {weighed(receipt)} {rates(receipt, labels)}".replace("  ", " ")]
    lines.append(f"Predicted {seconds(predicted_s(row))}, actual {seconds(actual)}.")
    if priced_only(row):
        lines.append(PRICED)
    return "\n".join(lines) + "\n"
