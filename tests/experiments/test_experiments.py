"""Compare, sweep and map in this process: what they leave can be recomputed, and they resume."""

import csv
import json
import re
from collections.abc import Callable
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from engine.cli import main
from engine.experiments.arms import baseline_arm, best_of, parse_arms
from engine.experiments.compare import Plan, run_plan
from engine.experiments.metrics import BY_KEY, DEFAULT_SLO, serve_json
from engine.experiments.runs import Simulated
from engine.experiments.source import preset_source
from engine.experiments.statistics import compare
from engine.profiling.profile import load_profile
from tests.engine.watched import profile_json

Capture = pytest.CaptureFixture[str]
APPLE = load_profile("apple-m2-published")
USUAL = {"cpu": 4, "gpu": 4}
COMPARE = ["compare", "--emulate", "apple-m2-published", "--virtual", "--pairs", "5"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished comparison."""
    folder = tmp_path_factory.mktemp("compared")
    assert main([*COMPARE, "--out", str(folder)]) == 0
    return folder


def results(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "results.json").read_text("utf-8"))
    return data


def run_files(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(p.read_text("utf-8")) for p in sorted((folder / "runs").glob("*.json"))]


# --- the baseline ---


def test_the_baseline_is_the_fastest_alone_at_its_best_slots() -> None:
    source = preset_source("seed-warm-8")
    arm, ladder = baseline_arm(APPLE, source, USUAL)
    assert (arm.policy, arm.slots_by_name, arm.baseline) == ("forced-gpu", {"cpu": 4, "gpu": 1}, True)
    by_slots = {s.slots: s.makespan_s for s in ladder}
    assert by_slots[1] == pytest.approx(3.53, abs=0.01) and by_slots[4] == pytest.approx(11.32, abs=0.01)
    assert best_of(ladder).slots == 1
    assert baseline_arm(APPLE, source, USUAL)[1] == ladder  # from the cache
    batching, _ = baseline_arm(load_profile("batching-gpu"), source, USUAL)
    assert batching.slots_by_name["gpu"] == 8


def test_arms_in_words() -> None:
    best = {"cpu": 4, "gpu": 1}
    arms = parse_arms(
        "total-delay@gpu=2,forced-gpu@best,total-delay,total-delay", ["cpu", "gpu"], USUAL, best
    )
    assert [a.key(USUAL) for a in arms] == ["total-delay@gpu=2", "forced-gpu@gpu=1", "total-delay"]
    assert arms[1].label(USUAL) == "forced-gpu, gpu 1 slot"


# --- compare ---


def test_every_figure_can_be_recomputed_from_the_run_files(compared: Path) -> None:
    data, runs = results(compared), run_files(compared)
    assert len(runs) == 5 * 5 and data["pairs"] == 5 and data["finished"]
    by_arm: dict[str, list[dict[str, Any]]] = {}
    for run in sorted(runs, key=lambda r: r["pair"]):
        figures = serve_json(run["result"], run["slo_ms"])
        assert figures == run["figures"]
        by_arm.setdefault(run["arm"], []).append(figures)
    base = by_arm[data["baseline"]]
    for arm, told in data["arms"].items():
        for key, mean in told.items():
            values = [f[key] for f in by_arm[arm]]
            if mean is None:
                assert None in values
            else:
                assert mean == pytest.approx(sum(values) / 5)  # in the unit that the key names
    for arm, by_metric in data["comparisons"].items():
        for key, c in by_metric.items():
            metric = BY_KEY[key]
            pairs = [[f[key] * metric.scale for f in runs] for runs in (base, by_arm[arm])]
            again = compare(*pairs, metric.lower_is_better, data["settings"]["seed"])
            assert again.verdict == c["verdict"]
            for name in ("baseline_mean", "mean", "difference", "low", "high"):
                assert c[name] == pytest.approx(getattr(again, name) / metric.scale)
    for run in data["runs"]:
        assert {k: v for k, v in run.items() if k not in ("arm", "pair", "seed")} in by_arm[run["arm"]]
    rows = list(csv.DictReader((compared / "means.csv").open()))
    for row in rows:
        metric = next(m for m in BY_KEY.values() if row[""] == f"{m.label}, {m.unit}")
        told_mean = data["arms"]["total-delay"][metric.key] * metric.scale
        assert float(row["total-delay"].replace(",", "")) == pytest.approx(told_mean, rel=5e-3)


def test_the_known_result(compared: Path) -> None:
    data = results(compared)
    assert data["baseline"] == "forced-gpu@gpu=1"
    change = data["comparisons"]["total-delay"]["duration"]
    assert change["verdict"] == "worse" and change["mean"] == pytest.approx(8.9, abs=0.2)
    same = data["comparisons"]["total-delay@gpu=1"]["duration"]
    assert abs(same["difference"]) < 0.1
    assert data["arms"]["forced-gpu"]["duration"] == pytest.approx(11.32, rel=0.02)
    orders = [[r["arm"] for r in run_files(compared) if r["pair"] == n] for n in (1, 2)]
    assert sorted(orders[0]) == sorted(orders[1])


def test_what_is_published_stands_beside_it_with_the_one_slot_row(compared: Path) -> None:
    rows = {r[""]: r for r in csv.DictReader((compared / "published.csv").open())}
    assert rows["8 requests, forced-gpu, 4 slots"]["simulated, s"] == "11.32"
    assert rows["48 requests, isolated-rates, 4 slots"]["published, s"] == "60.88"
    assert rows["48 requests, isolated-rates, 4 slots"]["on CPU, simulated"] == "6"
    assert rows["8 requests, forced-gpu, 1 slot"]["simulated, s"] == "3.53"
    assert rows["48 requests, forced-gpu, 1 slot"]["simulated, s"] in ("21.16", "21.2")
    assert "gain over a bad setting" in (compared / "report.md").read_text("utf-8")


class Balanced(HTMLParser):
    """Counts what a page would fetch, and checks that its tags close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [
            f"{tag} {k}" for k, v in attrs if k in ("src", "href") or (v or "").startswith("http:")
        ]
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass


def check_report(folder: Path) -> str:
    """One self-contained page, every picture valid and marked; returns the page."""
    page = (folder / "report.html").read_text("utf-8")
    parser = Balanced()
    parser.feed(page)
    assert not parser.open
    assert [f for f in parser.fetched if f != "svg xmlns"] == []
    drawings = sorted((folder / "charts").glob("*.svg"))
    assert drawings and page.count("<figure>") == len(drawings)
    for path in drawings:
        text = path.read_text("utf-8")
        ElementTree.fromstring(text)
        assert "SIMULATED" in text, path.name
        assert not re.search(r"\b(nan|inf)\b", text), path.name
    for path in folder.glob("*.csv"):
        assert path.read_text("utf-8").splitlines()[0].endswith(",mark"), path.name
    data = results(folder)
    assert data["mark"].startswith("SIMULATED") and (folder / "report.md").exists()
    for words in ("Definitions", "Repeat it", "Machine", "Versions", "offramp "):
        assert words in page
    return page


def test_the_report_is_one_marked_file(compared: Path) -> None:
    page = check_report(compared)
    assert "the fastest backend alone" in page and page.count("<script") == 0


def test_every_metric_has_its_definition_on_hover_and_in_the_text(compared: Path) -> None:
    page = (compared / "report.html").read_text("utf-8")
    shown = [row[""].rpartition(",")[0] for row in csv.DictReader((compared / "means.csv").open())]
    by_label = {m.label: escape(m.definition, quote=True) for m in BY_KEY.values()}
    assert len(shown) > 8
    for label in shown:
        words = by_label[label]
        assert f'title="{words}">{label}, ' in page and f"<dt>{label}</dt><dd>" in page
        assert f"**{label}**: " in (compared / "report.md").read_text("utf-8")


def test_no_setting_always_goes_first() -> None:
    many = plan(20)
    order = [many.key(arm) for _, arm in many.order()]
    orders = [tuple(order[i : i + 2]) for i in range(0, 40, 2)]
    assert len(set(orders)) == 2 and 4 <= orders.count(orders[0]) <= 16
    assert [pair for pair, _ in many.order()] == [n for n in range(1, 21) for _ in range(2)]
    assert many.order() == plan(20).order()


def test_a_second_call_runs_nothing_again(compared: Path, capsys: Capture) -> None:
    before = {p: p.stat().st_mtime_ns for p in (compared / "runs").iterdir()}
    results_before = results(compared)
    assert main([*COMPARE, "--out", str(compared)]) == 0
    assert {p: p.stat().st_mtime_ns for p in (compared / "runs").iterdir()} == before
    assert results(compared) == results_before


class Interrupted:
    """Runs like the simulator until its patience ends."""

    def __init__(self, runs: int) -> None:
        self._left = runs
        self._place = Simulated(APPLE, 0.02)
        self.done = 0

    def run(self, *args: Any) -> dict[str, Any]:
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        self.done += 1
        return self._place.run(*args)


def plan(pairs: int = 3, **more: Any) -> Plan:
    arms = parse_arms("forced-gpu@gpu=1,total-delay@gpu=1", ["cpu", "gpu"], USUAL, USUAL)
    return Plan(
        preset_source("seed-warm-8"), tuple(arms), pairs, 0, USUAL, {"place": "test", **more}, DEFAULT_SLO
    )


def test_interrupting_keeps_what_is_done_and_goes_on(tmp_path: Path) -> None:
    first = run_plan(plan(), Interrupted(3), tmp_path)
    assert (first.finished, first.pairs) == (False, 1)
    again = Interrupted(99)
    second = run_plan(plan(), again, tmp_path)
    assert (second.finished, second.pairs, again.done) == (True, 3, 3)
    whole = run_plan(plan(), Interrupted(99), tmp_path / "other")
    for arm, runs in whole.runs.items():
        assert [r.figures for r in runs] == [r.figures for r in second.runs[arm]]


@pytest.mark.parametrize("change", [{"noise": 1}, {"profile": "another"}])
def test_runs_of_other_settings_are_not_taken_over(tmp_path: Path, change: dict[str, Any]) -> None:
    run_plan(plan(1), Interrupted(9), tmp_path)
    other = Interrupted(9)
    run_plan(plan(1, **change), other, tmp_path)
    assert other.done == 2


def test_a_run_file_that_is_cut_short_is_run_again(tmp_path: Path) -> None:
    run_plan(plan(1), Interrupted(9), tmp_path)
    path = next((tmp_path / "runs").iterdir())
    path.write_text(path.read_text("utf-8")[:100], "utf-8")
    again = Interrupted(9)
    run_plan(plan(1), again, tmp_path)
    assert again.done == 1


def test_an_a_a_comparison_says_no_difference() -> None:
    """The same setting under two names: only the noise of the runs differs."""
    source, place = preset_source("seed-warm-8"), Simulated(APPLE, 0.02)
    (arm,) = parse_arms("forced-gpu@gpu=1", ["cpu", "gpu"], USUAL, USUAL)
    figures = [[serve_json(place.run(source, arm, n, f"{n}:{name}")) for n in range(8)] for name in "ab"]
    for key in ("duration", "mean_e2el_ms", "p95_ttft_ms", "output_throughput"):
        a, b = ([f[key] for f in runs] for runs in figures)
        assert a != b and compare(a, b, BY_KEY[key].lower_is_better).verdict == "no difference"


def test_live_backends_take_slots_per_run(tmp_path: Path, capsys: Capture) -> None:
    """Emulated on the wall clock, through the real engine: one engine, other slots for every run."""
    path = tmp_path / "fast.json"
    path.write_text(json.dumps(profile_json(decode_s=0.0005)), "utf-8")
    out = tmp_path / "out"
    argv = ["compare", "--emulate", str(path), "--policies", "total-delay,forced-cpu@cpu=2", "--pairs", "2"]
    trace = tmp_path / "own.json"
    requests = [{"at_s": i / 100, "prompt_tokens": 64, "max_new_tokens": 8} for i in range(4)]
    trace.write_text(json.dumps({"requests": requests}), "utf-8")
    assert main([*argv, "--trace", str(trace), "--out", str(out)]) == 0
    runs = run_files(out)
    by_arm = {r["arm"]: {b["name"]: b["slots"] for b in r["result"]["backends"]} for r in runs}
    assert by_arm["forced-cpu@cpu=2"] == {"cpu": 2, "gpu": 4} and by_arm["total-delay"] == USUAL
    assert all(len(r["token_times_s"]) == 8 for run in runs for r in run["result"]["requests"])
    assert results(out)["mark"].startswith("EMULATED")
    assert "too few for a verdict" in capsys.readouterr().out


# --- mistakes ---


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([*COMPARE, "--policies", "best"], "'best'"),
        ([*COMPARE, "--policies", ""], "policy"),
        ([*COMPARE, "--policies", "total-delay@tpu=1"], "'tpu'"),
        ([*COMPARE, "--policies", "total-delay@gpu=0"], "gpu=0"),
        ([*COMPARE, "--pairs", "0"], "--pairs 0"),
        ([*COMPARE, "--noise", "-1"], "--noise"),
        ([*COMPARE, "--slo", "x"], "--slo x"),
        ([*COMPARE, "--preset", "warm-9"], "'warm-9'"),
        ([*COMPARE, "--slots", "tpu=1"], "'tpu'"),
        ([*COMPARE, "--trace", "/nowhere.csv"], "cannot be read"),
        (["compare", "--virtual"], "--emulate"),
        (["sweep", "kv", "--real"], "--real"),
        (["sweep", "slots", "--pairs", "0"], "--pairs 0"),
        (["map", "--pairs", "0"], "--pairs 0"),
        (["sweep", "kv", "--noise", "99"], "--noise 99"),
        (["sweep", "slots", "--profile", "apple-m9"], "'apple-m9'"),
        (["map", "--profile", "apple-m9"], "'apple-m9'"),
        (["simulate", "--trace", "/nowhere.csv"], "cannot be read"),
    ],
)
def test_a_mistake_is_one_sentence(argv: list[str], words: str, tmp_path: Path, capsys: Capture) -> None:
    out = [] if argv[0] == "simulate" else ["--out", str(tmp_path / "out")]
    assert main([*argv, *out]) == 2
    stdout, err = capsys.readouterr()
    assert stdout == "" and words in err and "Traceback" not in err and err.count("\n") == 1


def test_a_file_is_no_folder(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "out").write_text("", "utf-8")
    assert main([*COMPARE, "--out", str(tmp_path / "out")]) == 2
    assert "is a file" in capsys.readouterr().err


def test_a_trace_is_simulated(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("time,input,output\n0,64,8\n9,64,4\n", "utf-8")
    seen: Callable[..., Any] = lambda *more: json.loads(  # noqa: E731
        (main(["simulate", "--trace", str(path), "--json", *more]), capsys.readouterr().out)[1]
    )
    assert [r["output_tokens"] for r in seen()["requests"]] == [8, 4]
    assert seen("--speed", "3")["requests"][1]["arrival_s"] == 3.0
    assert seen("--rate", "2")["requests"][1]["arrival_s"] == 0.5
    assert 0 < seen("--load", "0.5")["requests"][1]["arrival_s"] < 9
    assert len(seen("--limit", "1")["requests"]) == 1
