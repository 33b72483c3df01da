"""What is measured of a run, in the shape and under the names of `vllm bench serve`'s result JSON.

Everything is recomputed from each request's token times in the run's JSON, so that a run file is enough.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import ConfigError
from engine.experiments.percentiles import percentile

P99_LEAST = 100  # requests; below, p99 would only repeat the maximum
GOOD = ("stop", "length", "context")  # finish reasons of a request that was served
LATENCIES = ("ttft", "tpot", "itl", "e2el")
DEFAULT_SLO = {"ttft": 2000.0, "tpot": 100.0}
Run = Mapping[str, Any]  # a burst's JSON with token times


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run: its key in the JSON, its words, and which direction is good."""

    key: str
    label: str
    unit: str
    lower_is_better: bool
    definition: str
    scale: float = 1.0  # from the JSON's unit to `unit`


_TTFT = "from submission to the first token, waiting and routing included"
_E2E = "from submission to the last token"
METRICS = (
    Metric("duration", "Makespan", "s", True, "from the first submission to the last finish"),
    Metric("mean_e2el_ms", "E2E mean", "s", True, f"{_E2E}, mean over requests", 1e-3),
    Metric("median_e2el_ms", "E2E p50", "s", True, f"{_E2E}; half of the requests take no longer", 1e-3),
    Metric("p95_e2el_ms", "E2E p95", "s", True, f"{_E2E}; 95 % take no longer (nearest rank)", 1e-3),
    Metric("mean_ttft_ms", "TTFT mean", "s", True, f"{_TTFT}, mean over requests", 1e-3),
    Metric("median_ttft_ms", "TTFT p50", "s", True, f"{_TTFT}; half take no longer", 1e-3),
    Metric("p95_ttft_ms", "TTFT p95", "s", True, f"{_TTFT}; 95 % take no longer (nearest rank)", 1e-3),
    Metric("p99_ttft_ms", "TTFT p99", "s", True, f"{_TTFT}; shown from {P99_LEAST} requests on", 1e-3),
    Metric("mean_tpot_ms", "TPOT mean", "ms", True, "(E2E - TTFT) / (tokens - 1), mean over requests"),
    Metric("p95_itl_ms", "ITL p95", "ms", True, "gaps between tokens, n - 1 a request, of all requests"),
    Metric("output_throughput", "Output throughput", "tok/s", False, "output tokens / makespan"),
    Metric(
        "max_output_tokens_per_s",
        "Peak throughput",
        "tok/s",
        False,
        "output tokens in the best of the equal parts, at most 1 s long, that the makespan is cut into",
    ),
    Metric("request_goodput", "Goodput", "req/s", False, "requests that met the stated SLO / makespan"),
)
BY_KEY = {m.key: m for m in METRICS}


def parse_slo(text: str | None) -> dict[str, float]:
    """ "ttft=2000,tpot=100" in milliseconds; None gives the default. Raises `ConfigError`."""
    if text is None:
        return dict(DEFAULT_SLO)
    slo: dict[str, float] = {}
    for part in text.split(","):
        key, _, value = part.replace(":", "=").partition("=")
        try:
            slo[key.strip()] = float(value)
        except ValueError:
            slo[key.strip()] = -1.0
        if key.strip() not in ("ttft", "tpot", "e2el") or not 0 < slo[key.strip()] < math.inf:
            raise ConfigError(f"--slo {text} is unclear: give milliseconds such as ttft=2000,tpot=100.")
    return slo


def serve_json(result: Run, slo: Mapping[str, float] | None = None) -> dict[str, Any]:
    """A run in the shape of `vllm bench serve`, with the same for each backend under `per_backend`.

    Percentiles are nearest rank; what cannot be known is None: p99 under 100 requests, a gap where there
    is one token. Raises `KeyError` when the run was kept without token times.
    """
    requests: list[Mapping[str, Any]] = list(result["requests"])
    out = _summary(requests, result["makespan_s"], slo or DEFAULT_SLO, "all")
    names = [b["name"] for b in result["backends"]]
    out["per_backend"] = [
        _summary([r for r in requests if r["backend"] == n], result["makespan_s"], slo or DEFAULT_SLO, n)
        for n in names
    ]
    return out


def _summary(
    requests: Sequence[Mapping[str, Any]], duration: float | None, slo: Mapping[str, float], backend: str
) -> dict[str, Any]:
    served = [r for r in requests if r["finish_reason"] in GOOD and r["token_times_s"]]
    output = sum(len(r["token_times_s"]) for r in served)
    times = [latencies(r) for r in served]
    good = sum(1 for t in times if meets(t, slo))
    out: dict[str, Any] = {
        "backend": backend,
        "duration": duration,
        "num_prompts": len(requests),
        "completed": len(served),
        "failed": len(requests) - len(served),
        "total_input_tokens": sum(r["prompt_tokens"] for r in served),
        "total_cached_tokens": sum(r["cached_tokens"] for r in served),
        "total_output_tokens": output,
        "request_throughput": _per(len(served), duration),
        "output_throughput": _per(output, duration),
        "max_output_tokens_per_s": peak_tokens_per_s(served, duration),
        "request_goodput": _per(good, duration),
        "goodput_slo_ms": dict(slo),
    }
    for name in LATENCIES:
        values = [v for t in times for v in t[name]]
        enough = len(served) >= P99_LEAST
        out |= {
            f"mean_{name}_ms": _mean(values),
            f"median_{name}_ms": percentile(values, 50),
            f"std_{name}_ms": _deviation(values),
            f"p95_{name}_ms": percentile(values, 95),
            f"p99_{name}_ms": percentile(values, 99) if enough else None,
        }
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in out.items()}


def latencies(request: Mapping[str, Any]) -> dict[str, list[float]]:
    """Milliseconds of one request by name; TPOT and ITL are empty where there is one token."""
    times: list[float] = request["token_times_s"]
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
    return {
        "ttft": [times[0] * 1e3],
        "tpot": [(times[-1] - times[0]) / len(gaps) * 1e3] if gaps else [],
        "itl": [gap * 1e3 for gap in gaps],
        "e2el": [times[-1] * 1e3],
    }


def meets(times: Mapping[str, Sequence[float]], slo: Mapping[str, float]) -> bool:
    """Did a request keep every limit? One without a value for a limit keeps it."""
    return all(value <= limit for name, limit in slo.items() for value in times[name])


def peak_tokens_per_s(requests: Sequence[Mapping[str, Any]], duration: float | None) -> float | None:
    """Most output tokens a second over equal parts of the makespan, so never below the mean."""
    if not duration:
        return None
    parts = max(1, math.ceil(duration))
    counts = Counter(
        min(parts - 1, max(0, int((r["arrival_s"] + t) / duration * parts)))
        for r in requests
        for t in r["token_times_s"]
    )
    return max(counts.values(), default=0) * parts / duration


def _per(count: int, duration: float | None) -> float | None:
    return count / duration if duration else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _deviation(values: Sequence[float]) -> float | None:
    """Of the population, as vLLM has it."""
    if not values:
        return None
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))
