"""The figures of a run, recomputed by other means from its token times."""

import math
from typing import Any

import numpy as np
import pytest

from engine.errors import ConfigError
from engine.experiments.metrics import BY_KEY, METRICS, latencies, parse_slo, serve_json
from engine.experiments.source import preset_source
from engine.profiling.profile import load_profile
from engine.simulation.noise import StepNoise
from engine.simulation.simulate import Simulation, fake_tokenise

PROFILE = load_profile("apple-m2-published")


def simulate(preset: str = "labels-and-stories", policy: str = "isolated-rates") -> dict[str, Any]:
    workload = preset_source(preset).build(fake_tokenise, 0)
    return dict(Simulation(PROFILE, policy).run(workload, token_times=True))


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    return simulate()


def test_every_token_has_its_time_and_n_tokens_have_n_minus_1_gaps(run: dict[str, Any]) -> None:
    for r in run["requests"]:
        times = r["token_times_s"]
        assert len(times) == r["output_tokens"] and times == sorted(times)
        assert times[0] == pytest.approx(r["ttft_s"], abs=2e-6)
        assert times[-1] == pytest.approx(r["e2e_s"], abs=2e-6)
        assert len(latencies(r)["itl"]) == r["output_tokens"] - 1


def test_token_times_are_there_only_when_asked() -> None:
    workload = preset_source("seed-warm-8").build(fake_tokenise, 0)
    result = Simulation(PROFILE, "forced-gpu").run(workload)
    requests: Any = result["requests"]
    assert all("token_times_s" not in r for r in requests)


def test_figures_against_numpy(run: dict[str, Any]) -> None:
    figures = serve_json(run)
    ttft = [r["ttft_s"] * 1e3 for r in run["requests"]]
    e2e = [r["e2e_s"] * 1e3 for r in run["requests"]]
    itl = [g for r in run["requests"] for g in np.diff(r["token_times_s"]) * 1e3]
    for name, values in (("ttft", ttft), ("e2el", e2e), ("itl", itl)):
        assert figures[f"mean_{name}_ms"] == pytest.approx(np.mean(values), rel=1e-4)
        assert figures[f"std_{name}_ms"] == pytest.approx(np.std(values), rel=1e-3)
        for key, q in (("median", 50), ("p95", 95)):
            exact = np.percentile(values, q, method="inverted_cdf")
            assert figures[f"{key}_{name}_ms"] == pytest.approx(exact, rel=1e-4)
    assert figures["duration"] == run["makespan_s"]
    assert figures["output_throughput"] == pytest.approx(run["output_throughput"])


def test_sums_match(run: dict[str, Any]) -> None:
    figures = serve_json(run)
    parts = figures["per_backend"]
    assert [p["backend"] for p in parts] == ["cpu", "gpu"] and figures["backend"] == "all"
    for key in ("completed", "total_input_tokens", "total_output_tokens", "num_prompts"):
        assert figures[key] == sum(p[key] for p in parts)
    assert figures["total_output_tokens"] == sum(r["output_tokens"] for r in run["requests"])
    assert figures["completed"] + figures["failed"] == len(run["requests"])
    total = sum(p["output_throughput"] for p in parts)
    assert figures["output_throughput"] == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize("preset", ["seed-warm-8", "cold-12", "labels-and-stories", "steady-0.5"])
def test_the_peak_is_never_below_the_mean(preset: str) -> None:
    figures = serve_json(simulate(preset))
    assert figures["max_output_tokens_per_s"] >= figures["output_throughput"]


def by_hand(times: list[list[float]], **more: Any) -> dict[str, Any]:
    requests = [
        {
            "backend": "gpu",
            "arrival_s": 0.0,
            "prompt_tokens": 4,
            "cached_tokens": 0,
            "output_tokens": len(t),
            "finish_reason": "length",
            "token_times_s": t,
            **more,
        }
        for t in times
    ]
    makespan = max((t[-1] for t in times if t), default=None)
    return {"requests": requests, "makespan_s": makespan, "backends": [{"name": "gpu"}]}


def test_goodput_counts_requests_that_keep_every_limit() -> None:
    run = by_hand([[0.1, 0.2], [0.5, 0.6], [0.1, 1.0], [0.1]])
    figures = serve_json(run, {"ttft": 200, "tpot": 150})
    assert figures["request_goodput"] == pytest.approx(2 / 1.0)  # the second is late, the third slow
    assert figures["goodput_slo_ms"] == {"ttft": 200, "tpot": 150}


def test_what_cannot_be_known_is_missing_and_not_0() -> None:
    one = serve_json(by_hand([[0.5]]))
    assert one["mean_itl_ms"] is None and one["mean_tpot_ms"] is None and one["mean_ttft_ms"] == 500
    failed = serve_json(by_hand([[]], finish_reason="error"))
    assert (failed["completed"], failed["failed"]) == (0, 1)
    assert failed["mean_ttft_ms"] is None and failed["output_throughput"] is None


@pytest.mark.parametrize(("count", "there"), [(99, False), (100, True)])
def test_p99_needs_100_requests(count: int, there: bool) -> None:
    figures = serve_json(by_hand([[0.1 + i / 1000, 0.3 + i / 1000] for i in range(count)]))
    assert (figures["p99_ttft_ms"] is not None) is there
    assert figures["p95_ttft_ms"] is not None


def test_limits_in_words() -> None:
    assert parse_slo("ttft=200, tpot:50") == {"ttft": 200, "tpot": 50}
    for wrong in ("ttft", "ttft=x", "speed=3", "ttft=-1", "ttft=nan", ""):
        with pytest.raises(ConfigError, match="--slo"):
            parse_slo(wrong)


def test_every_metric_has_a_definition_and_a_key() -> None:
    figures = serve_json(by_hand([[0.1, 0.2]]))
    for metric in METRICS:
        assert metric.key in figures and metric.definition and BY_KEY[metric.key] is metric


def test_noise_is_seeded_and_has_mean_1() -> None:
    a, b = StepNoise("a"), StepNoise("a")
    first = [a.factor("gpu") for _ in range(50)]
    assert first == [b.factor("gpu") for _ in range(50)]
    assert first != [StepNoise("b").factor("gpu") for _ in range(50)]
    many = [StepNoise(str(i)).factor("gpu") for i in range(2000)]
    assert np.mean(many) == pytest.approx(1.0, abs=0.002)
    assert np.std(many) == pytest.approx(math.hypot(0.02, 0.01), rel=0.1)
    assert StepNoise("a", 0.0).factor("gpu") == 1.0
