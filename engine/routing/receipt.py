"""Receipts in words and as JSON."""

from collections.abc import Mapping

from engine.receipt import Candidate, Receipt


def label_of(backend: str) -> str:
    """The word for a backend: cpu -> CPU, cpu-1 -> CPU 1."""
    head, _, tail = backend.partition("-")
    return f"{head.upper()} {tail}".strip()


def reason_of(
    policy: str, used: str, chosen: Candidate, others: list[Candidate], labels: Mapping[str, str]
) -> str:
    """One short sentence for people. `used` is the policy that really decided."""
    name = labels[chosen.backend]
    if not others:
        return f"The {name} is the only backend running."
    if policy != used and used == "least-requests":
        return f"Not calibrated yet, so the {name} gets it: fewest requests."
    if used == "total-delay":
        return _delay_reason(chosen, others, labels)
    if used == "batched-clear":
        return f"The {name} would be clear first, after {chosen.clear_s or 0.0:.1f} s."
    if used == "isolated-rates":
        rival = min(others, key=lambda c: c.score_s if c.score_s is not None else float("inf"))
        if chosen.score_s is None or rival.score_s is None:
            return f"The {name} gets it: the other backend has no price."
        verb = "Waiting for" if rival.active or rival.queued else "Using"
        return (
            f"{verb} the {labels[rival.backend]} would cost {rival.score_s:.1f} s, "
            f"the {name} needs {chosen.score_s:.1f} s."
        )
    if used == "least-requests":
        count = chosen.active + chosen.queued
        return f"The {name} has the fewest requests: {count}."
    if used == "round-robin":
        return f"It is the {name}'s turn."
    if used.removeprefix("forced-") in (chosen.backend, "fastest", "slowest"):
        return f"The policy sends everything to the {name}."
    return f"The forced backend is not running, so the {name} takes it."


def _delay_reason(chosen: Candidate, others: list[Candidate], labels: Mapping[str, str]) -> str:
    rival = min(others, key=lambda c: c.delay_s if c.delay_s is not None else float("inf"))
    name, other = labels[chosen.backend], labels[rival.backend]
    saved = (rival.delay_s or 0.0) - (chosen.delay_s or 0.0)
    if saved >= 0:
        return f"On the {name} everybody together waits {saved:.1f} s less than with it on the {other}."
    return f"The {other} would save everybody {-saved:.1f} s in all: too little, or too late for this one."


def move_reason(chosen: Candidate, stayed: Candidate | None, labels: Mapping[str, str]) -> str:
    """Why a request that waited on one backend went to another."""
    name = labels[chosen.backend]
    if stayed is None or stayed.delay_s is None or chosen.delay_s is None:
        return f"Moved here: the {name} has room."
    saved, other = stayed.delay_s - chosen.delay_s, labels[stayed.backend]
    return f"Moved from the queue of the {other}: on the {name} everybody together waits {saved:.1f} s less."


def candidate_json(candidate: Candidate) -> dict[str, object]:
    return {
        "backend": candidate.backend,
        "score_s": candidate.score_s,
        "score": candidate.score,
        "prefill_tokens": candidate.prefill_tokens,
        "decode_tokens": candidate.decode_tokens,
        "active": candidate.active,
        "queued": candidate.queued,
        "cached_tokens": candidate.cached_tokens,
        "own_prefill_tokens": candidate.own_prefill_tokens,
        "own_decode_tokens": candidate.own_decode_tokens,
        "active_prefill_tokens": candidate.active_prefill_tokens,
        "active_decode_tokens": candidate.active_decode_tokens,
        "queued_prefill_tokens": candidate.queued_prefill_tokens,
        "queued_decode_tokens": candidate.queued_decode_tokens,
        "prefill_rate": candidate.prefill_rate,
        "decode_rate": candidate.decode_rate,
        "delay_s": candidate.delay_s,
        "ttft_s": candidate.ttft_s,
        "e2e_s": candidate.e2e_s,
        "clear_s": candidate.clear_s,
        "margin_s": candidate.margin_s,
    }


def receipt_json(receipt: Receipt) -> dict[str, object]:
    return {
        "chosen": receipt.chosen,
        "reason": receipt.reason,
        "policy": receipt.policy,
        "unit": receipt.unit,
        "moved_from": receipt.moved_from,
        "weights": str(receipt.weights) if receipt.weights is not None else None,
        "candidates": [candidate_json(c) for c in receipt.candidates],
    }
