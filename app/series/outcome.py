"""What a finished burst amounts to: figures of one run, and of the run before it beside them. No Qt."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.series.hindsight import RegretState
from app.series.percentiles import MIN_FOR_P95, percentile
from app.series.words import figure, percent, plural, seconds
from engine.recording import EARLY, early_words, ended_early

NO_VERDICT = "Two single runs, no verdict: they may differ by chance."
ONE_RUN = "One run, no verdict."


@dataclass(frozen=True, slots=True)
class Placed:
    number: int
    backend: str
    ttft_s: float | None
    e2e_s: float | None  # None also where it did not end by itself: that moment is no latency


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One burst. `result` is the JSON object that the engine gave."""

    result: Mapping[str, Any]
    emulation: str = ""  # "Apple M2, published timings"; "" = measured

    @property
    def preset(self) -> str:
        return str(self.result.get("preset", ""))

    @property
    def policy(self) -> str:
        return str(self.result.get("policy", ""))

    @property
    def run_id(self) -> str:
        return str(self.result.get("run_id") or "")

    @property
    def makespan_s(self) -> float | None:
        return self.result.get("makespan_s")

    @property
    def mixed(self) -> bool:
        """Requests from outside ran beside it."""
        return bool(self.result.get("mixed"))

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.result.get("requests_per_backend") or {})

    def requests(self) -> list[Placed]:
        return [
            Placed(
                int(r["id"]),
                str(r["backend"]),
                r.get("ttft_s"),
                None if r.get("finish_reason") in EARLY else r.get("e2e_s"),
            )
            for r in self.result.get("requests") or ()
        ]

    def values(self, kind: str) -> list[float]:
        """Known "ttft_s" or "e2e_s"."""
        return [v for r in self.requests() if (v := getattr(r, kind)) is not None]

    def gaps_s(self) -> list[float]:
        """Times between tokens of every request; [] where the run does not hold them."""
        times = (r.get("token_times_s") or () for r in self.result.get("requests") or ())
        return [b - a for each in times for a, b in zip(each, each[1:], strict=False)]

    @property
    def whole(self) -> bool:
        """Every request ended by itself: only such runs are compared."""
        return not any(ended_early(self.result))


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    unit: str
    decimals: int
    now: float | None
    before: float | None = None

    @property
    def change_percent(self) -> float | None:
        if self.now is None or not self.before:
            return None
        return (self.now / self.before - 1) * 100


def metrics(now: RunSummary, before: RunSummary | None = None) -> list[Metric]:
    def pair(read) -> tuple[float | None, float | None]:
        return read(now), read(before) if before is not None else None

    out = [
        Metric("Makespan", "s", 2, *pair(lambda r: r.makespan_s)),
        Metric("Output throughput", "tok/s", 1, *pair(lambda r: r.result.get("output_throughput"))),
    ]
    for kind, name in (("ttft_s", "TTFT"), ("e2e_s", "E2E")):
        for q in (50, 95):
            values = pair(lambda r, kind=kind, q=q: percentile(r.values(kind), q))
            out.append(Metric(f"{name} p{q}", "s", 2, *values))
    gaps = pair(lambda r: percentile([gap * 1000 for gap in r.gaps_s()], 95))
    out.insert(4, Metric("ITL p95", "ms", 1, *gaps))
    return out


def with_token_times(result: Mapping[str, Any], times_s: Mapping[int, Sequence[float]]) -> dict[str, Any]:
    """A run's result with when each token came, by the request's number, counted from its arrival."""
    requests = [
        {**r, "token_times_s": list(times_s[int(r["id"])])}
        if int(r["id"]) in times_s and not r.get("token_times_s")
        else r
        for r in result.get("requests") or ()
    ]
    return {**result, "requests": requests}


def headline(run: RunSummary) -> str:
    """`8 requests in 10.15 s`, or what became of those that did not end by themselves."""
    count = len(run.requests())
    whole = f"{figure(count)} {plural(count, 'request')} in {seconds(run.makespan_s)}"
    return early_words(run.result) or whole


def placement(run: RunSummary, labels: Mapping[str, str]) -> str:
    """`7 requests went to the GPU, 1 to the CPU.`"""
    counts = sorted(run.counts.items(), key=lambda pair: -pair[1])
    parts = [f"{figure(n)} to the {labels.get(b, b)}" for b, n in counts]
    if not parts:
        return ""
    first = parts[0].replace(" to the", f" {plural(counts[0][1], 'request')} went to the", 1)
    return ", ".join([first, *parts[1:]]) + "."


def notes(now: RunSummary, before: RunSummary | None) -> list[str]:
    out = []
    count = len(now.requests())
    if 0 < count < MIN_FOR_P95:
        out.append(f"p95 of {figure(count)} requests is their maximum.")
    if now.mixed or (before is not None and before.mixed):
        between = "Typed prompts or changed settings came in between"
        out.append(f"{between}, so its times are not those of the burst alone.")
    if not now.whole:
        out.append("Figures are of what was done until then; E2E of replies that ended by themselves.")
    return out


def sentence(now: RunSummary, before: RunSummary | None, labels: Mapping[str, str]) -> str:
    where = placement(now, labels)
    if before is None:
        return f"{where} {ONE_RUN}".strip()
    gap = f"{before.policy} took {seconds(before.makespan_s)}."
    return f"{where} {gap} {NO_VERDICT}".strip()


def partner(runs: Sequence[RunSummary]) -> RunSummary | None:
    """The newest earlier run of the same preset on the same machine under another policy, both whole."""
    *earlier, last = runs
    if not last.whole:
        return None
    fits = (
        r for r in reversed(earlier)
        if r.preset == last.preset and r.policy != last.policy and r.emulation == last.emulation and r.whole
    )  # fmt: skip
    return next(fits, None)


def as_markdown(now: RunSummary, before: RunSummary | None, labels: Mapping[str, str]) -> str:
    lines = [f"### {now.preset}, {now.policy}: {headline(now)}", ""]
    if now.emulation:
        lines += [f"**EMULATED** {now.emulation}", ""]
    lines += [sentence(now, before, labels), ""]
    if before is None:
        lines += [f"| | {now.policy} |", "|---|---:|"]
    else:
        lines += [f"| | {before.policy} | {now.policy} | change |", "|---|---:|---:|---:|"]
    for m in metrics(now, before):
        cells = [figure(m.now, m.decimals)]
        if before is not None:
            change = percent(m.change_percent, 1, signed=True)
            cells = [figure(m.before, m.decimals), *cells, change]
        lines.append(f"| {m.name}, {m.unit} | " + " | ".join(cells) + " |")
    for backend, count in now.counts.items():
        cells = [figure(count)]
        if before is not None:
            cells = [figure(before.counts.get(backend, 0)), *cells, ""]
        lines.append(f"| Requests on the {labels.get(backend, backend)} | " + " | ".join(cells) + " |")
    found = notes(now, before)
    return "\n".join([*lines, "", *found]).rstrip() + "\n"


def as_json(now: RunSummary, before: RunSummary | None, regret: RegretState | None = None) -> str:
    runs = [dict(r.result) | {"emulation": r.emulation or None} for r in (before, now) if r is not None]
    data: dict[str, Any] = {"format": "offramp-result", "version": 1, "runs": runs}
    if regret is not None and regret.regret is not None:
        data["regret"] = {"simulated": True, **asdict(regret.regret)}
    return json.dumps(data, indent=2) + "\n"
