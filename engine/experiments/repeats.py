"""A burst repeated: how good were the forecasts, beside how much the same burst varies from run to run."""

from collections.abc import Mapping, Sequence
from typing import Any

from engine.experiments.percentiles import percentile
from engine.experiments.statistics import compare

Run = Mapping[str, Any]
FORECASTS = {
    "at_routing": "predicted_s",  # made when each request was routed: later arrivals are unknown
    "at_last_arrival": "predicted_last_arrival_s",  # renewed when everybody had come
    "true_lengths": "predicted_true_lengths_s",  # that one with true lengths: the model's error alone
}


def forecast_errors(runs: Sequence[Run]) -> dict[str, dict[str, float | int | None]]:
    """Absolute relative errors of E2E, |forecast / actual - 1|, over all requests of all runs.

    A request that moved is judged by what the move foresaw; forecasts from before it are of a backend where
    the request did not run, and are left out.
    """
    out: dict[str, dict[str, float | int | None]] = {}
    for name, key in FORECASTS.items():
        errors = [
            abs(r[key] / r["e2e_s"] - 1)
            for run in runs
            for r in run["requests"]
            if r.get(key) is not None and r["e2e_s"] and (key == "predicted_s" or not _moved_since(r, run))
        ]
        mean = sum(errors) / len(errors) if errors else None
        out[name] = {"requests": len(errors), "mean": mean, "p95": percentile(errors, 95)}
    return out


def _moved_since(request: Run, run: Run) -> bool:
    """Did it move to another backend after everybody had come?"""
    if not (request.get("receipt") or {}).get("moved_from") or request.get("routed_s") is None:
        return False
    last_s = max(r["arrival_s"] for r in run["requests"])
    return bool(request["arrival_s"] + request["routed_s"] > last_s)


def run_noise(runs: Sequence[Run]) -> dict[str, float | None]:
    """Run-to-run noise of one policy: mean absolute relative deviation of each request's E2E and of the
    makespan from their means over the runs; None of fewer than two runs."""
    if len(runs) < 2:
        return {"e2e": None, "makespan": None}
    by_request: dict[int, list[float]] = {}
    for run in runs:
        for r in run["requests"]:
            if r["e2e_s"] is not None:
                by_request.setdefault(r["id"], []).append(r["e2e_s"])
    deviations = [d for values in by_request.values() for d in _deviations(values)]
    makespans = _deviations([run["makespan_s"] for run in runs if run["makespan_s"] is not None])
    return {"e2e": _mean(deviations), "makespan": _mean(makespans)}


def against(runs: Mapping[str, Sequence[Run]], policy: str) -> list[dict[str, Any]]:
    """`policy` against each other one, paired run by run: change of makespan and mean E2E, with verdict."""
    rows = []
    for other, theirs in runs.items():
        if other == policy:
            continue
        row: dict[str, Any] = {"policy": policy, "against": other, "pairs": len(theirs)}
        for name, figure in (("makespan", _makespan), ("mean_e2e", _mean_e2e)):
            mine = [figure(r) for r in runs[policy]]
            base = [figure(r) for r in theirs]
            found = compare(base, mine, lower_is_better=True)
            row[name] = {
                "mean_s": found.mean,
                "against_s": found.baseline_mean,
                "change": found.share(found.difference),
                "low": found.share(found.low),
                "high": found.share(found.high),
                "verdict": found.verdict,
            }
        rows.append(row)
    return rows


def _makespan(run: Run) -> float:
    return float(run["makespan_s"])


def _mean_e2e(run: Run) -> float:
    values = [r["e2e_s"] for r in run["requests"] if r["e2e_s"] is not None]
    return float(sum(values) / len(values))


def _deviations(values: Sequence[float]) -> list[float]:
    if len(values) < 2:
        return []
    mean = sum(values) / len(values)
    return [abs(v / mean - 1) for v in values]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
