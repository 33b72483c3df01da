"""Sweeps: the baseline and a verdict at every point, knees, and progress for programs."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from engine.cli import main
from engine.experiments import svg
from engine.experiments.arms import parse_arms
from engine.experiments.charts import Mark
from engine.experiments.compare import Outcome, Plan
from engine.experiments.compare_report import compare_report
from engine.experiments.effects import Effect
from engine.experiments.grid import Done
from engine.experiments.map_parts import Told
from engine.experiments.map_report import map_report
from engine.experiments.metrics import DEFAULT_SLO
from engine.experiments.offload_map import backlog_grid
from engine.experiments.report import Chart
from engine.experiments.runs import RunFile
from engine.experiments.source import preset_source
from engine.experiments.statistics import Verdict, compare
from engine.experiments.sweep import knee, knob, knob_jobs
from engine.experiments.sweep_report import _knee_words, _knob_headline, knob_report, slots_report
from engine.profiling.profile import load_profile
from tests.engine.watched import profile_json
from tests.experiments.test_experiments import check_report, results

Capture = pytest.CaptureFixture[str]
APPLE = load_profile("apple-m2-published")
USUAL = {"cpu": 4, "gpu": 4}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def fast(tmp_path: Path) -> str:
    path = tmp_path / "fast.json"
    path.write_text(json.dumps(profile_json()), "utf-8")
    return str(path)


@pytest.mark.parametrize("kind", ["slots", "kv"])
def test_a_sweep_leaves_a_report(kind: str, fast: str, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    assert main(["sweep", kind, "--quick", "--pairs", "1", "--profile", fast, "--out", str(out)]) == 0
    assert "SIMULATED" in capsys.readouterr().out
    check_report(out)
    data = results(out)
    if kind == "kv":
        assert data["knobs"][0]["rows"]
        return
    seen = {p.stem: json.loads(p.read_text("utf-8"))["figures"] for p in (out / "runs").glob("*.json")}
    for name in ("cpu", "gpu"):
        column = data["columns"].index(f"{name} Output throughput, tok/s")
        curve = []
        for row in data["rows"]:
            exact = seen[f"pair-01-slots-{row[0]}-{name}"]["output_throughput"]
            assert float(row[column].replace(",", "")) == pytest.approx(exact, rel=0.01)
            curve.append((float(row[0]), exact))
        best = max(y for _, y in curve)
        assert data["knees"][name] == next(x for x, y in curve if y >= 0.95 * best)


def test_the_knee_is_the_fewest_slots_near_the_best() -> None:
    assert knee([(1, 50.0), (2, 94.0), (4, 96.0), (8, 100.0)]) == (4, 96.0)
    assert knee([(1, 100.0), (2, 30.0)]) == (1, 100.0)


def test_every_point_of_a_sweep_can_be_recomputed_and_has_its_verdict(fast: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["sweep", "prompt", "--quick", "--profile", fast, "--out", str(out)]) == 0
    files = [(p.stem, json.loads(p.read_text("utf-8"))) for p in (out / "runs").glob("*.json")]
    seen = {(re.sub(r"^pair-\d+-", "", n), r["seed"]): r["figures"]["mean_e2el_ms"] / 1e3 for n, r in files}
    (one,) = results(out)["knobs"]
    assert len(one["rows"]) == len(one["effects"]) == 4
    check_report(out)
    for value, row, found in zip((32, 128, 512, 2048), one["rows"], one["effects"], strict=True):
        alone, routed = (
            [seen[f"prompt-{value:g}-{arm}", seed] for seed in range(5)]
            for arm in ("fastest-alone", "total-delay")
        )
        c = compare(alone, routed, True)
        assert (found["verdict"], row[-1]) == (c.verdict, c.verdict)
        assert found["gain"] == pytest.approx(-c.difference / c.baseline_mean)
        assert found["low"] == pytest.approx(-c.high / c.baseline_mean)
        assert float(row[1].replace(",", "")) == pytest.approx(c.baseline_mean, rel=0.01)


def test_the_arms_of_a_pair_come_in_another_order_every_time() -> None:
    jobs = knob_jobs(knob("output", quick=True), APPLE, USUAL, range(3))
    pairs = [jobs[i : i + 4] for i in range(0, len(jobs), 4)]
    assert all(len({(j.point, j.seed) for j in pair}) == 1 for pair in pairs)
    assert all(len({j.arm_name for j in pair}) == 4 for pair in pairs)
    assert len({tuple(j.arm_name for j in pair) for pair in pairs}) > 6


def test_backends_have_their_marks_by_rank_and_not_by_name() -> None:
    """Two CPUs must not look alike: the faster one is the blue circle, the slower one the amber square."""
    two = replace(
        APPLE,
        name="two",
        backends=tuple(
            replace(b, name=name) for b, name in zip(APPLE.backends, ("cpu-2", "cpu-1"), strict=True)
        ),
    )
    figures = {"output_throughput": 10.0, "mean_tpot_ms": 5.0, "mean_e2el_ms": 900.0}
    runs = {
        (f"slots-{n}", name, 0): RunFile(name, 1, 0, {}, figures)
        for n in (1, 2)
        for name in ("cpu-1", "cpu-2")
    }
    report, _ = slots_report(Done(runs, True), two, [1, 2], Mark(), (), ["offramp"])
    drawing = next(p.drawing for p in report.sections[0].parts if isinstance(p, Chart))
    inks = dict(re.findall(r'fill="(#\w+)"[^>]*>(CPU-\d) alone', drawing))
    assert inks == {svg.GPU_INK: "CPU-1", svg.CPU_INK: "CPU-2"}
    assert drawing.count("<circle") >= 2 and f'fill="{svg.CPU_LINE}"' in drawing


def test_the_last_point_is_no_knee_while_throughput_grows() -> None:
    rising = [(1.0, 10.0), (2.0, 20.0), (4.0, 40.0)]
    assert _knee_words(knee(rising)[0], rising) == "still rising at 4 slots"
    level = [(1.0, 10.0), (2.0, 20.0), (4.0, 20.5)]
    assert _knee_words(knee(level)[0], level) == "2 slots"
    assert _knee_words(1.0, [(1.0, 10.0)]) == "1 slot"


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        ([Verdict.SAME, Verdict.SAME], "No difference found"),
        ([Verdict.NONE, Verdict.NONE], "too few pairs"),
        ([Verdict.BETTER, Verdict.WORSE], "better at 1, up to 10.0 % less and worse at 1, up to 10.0 % more"),
    ],
)
def test_a_sweeps_headline_goes_by_the_verdicts(verdicts: list[Verdict], words: str) -> None:
    small = [Effect(0.015, 0.01, 0.02, Verdict.BETTER, ("a",) * 5)]
    assert "No difference found" in _knob_headline(small, "GPU alone")  # below what a device varies by
    signs = {Verdict.WORSE: -1, Verdict.BETTER: 1}
    found = [Effect(0.1 * signs.get(v, 0), -0.2, 0.2, v, ("a",) * 5) for v in verdicts]
    assert words in _knob_headline(found, "GPU alone")


def test_progress_for_programs_is_json_lines(fast: str, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    argv = ["sweep", "output", "--quick", "--pairs", "1", "--profile", fast, "--out", str(out)]
    assert main([*argv, "--progress", "json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["type"] for line in lines[:-1]} == {"progress"}
    first, last, report = lines[0], lines[-2], lines[-1]
    assert (first["done"], first["total"], first["left_s"]) == (0, 16, None)
    assert (last["done"], last["left_s"]) == (16, 0)
    assert report["type"] == "report" and Path(report["report"]).is_file() and report["charts"]
    assert all(Path(c).is_file() for c in report["charts"]) and report["mark"].startswith("SIMULATED")


@pytest.mark.parametrize("kind", ["compare", "slots", "output", "map"])
def test_every_report_on_the_published_profile_has_its_table(kind: str) -> None:
    """The one-slot row is the first thing to say on it, whatever was asked."""
    done, facts = Done({}, True), (("Model", "none"),)
    if kind == "compare":
        arms = tuple(parse_arms("forced-gpu@gpu=1,total-delay", ["cpu", "gpu"], USUAL, USUAL))
        plan = Plan(preset_source("seed-warm-8"), arms, 1, 0, USUAL, {}, DEFAULT_SLO)
        outcome = Outcome(plan, {plan.key(a): [] for a in arms}, True)
        report, _ = compare_report(outcome, APPLE, [], Mark(), facts, ["offramp"])
    elif kind == "slots":
        report, _ = slots_report(done, APPLE, [1, 2], Mark(), facts, ["offramp"])
    elif kind == "output":
        report, _ = knob_report(kind, [knob(kind, True)], done, range(1), APPLE, Mark(), facts, ["offramp"])
    else:
        grid = backlog_grid(APPLE, USUAL, quick=True)
        report, _ = map_report(Told([grid], done, range(1), None, APPLE, USUAL), Mark(), facts, ["offramp"])
    (section,) = (s for s in report.sections if s.title == "Beside the published experiment")
    assert "gain over a bad setting" in section.words
    rows = {row[0]: row for part in section.parts for row in part.rows}  # type: ignore[union-attr]
    assert rows["8 requests, forced-gpu, 1 slot"][2] == "3.53"
    assert "48 requests, forced-gpu, 1 slot" in rows
