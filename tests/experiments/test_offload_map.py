"""The offload map: intervals of its cells, what is drawn and said, measured beside simulated."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from engine.cli import main
from engine.experiments.arms import Arm
from engine.experiments.charts import Mark
from engine.experiments.effects import Effect, effect
from engine.experiments.grid import run_jobs
from engine.experiments.heatmap import Panel, Shade, heatmap
from engine.experiments.map_parts import Told
from engine.experiments.map_report import map_report
from engine.experiments.metrics import BY_KEY, DEFAULT_SLO, serve_json
from engine.experiments.offload_map import Grid, at_usual_slots, backlog_grid, effects, map_jobs, some_cells
from engine.experiments.report import Chart
from engine.experiments.runs import Simulated
from engine.experiments.statistics import Verdict, compare
from engine.profiling.profile import load_profile
from tests.engine.watched import profile_json
from tests.experiments.test_experiments import check_report, results

Capture = pytest.CaptureFixture[str]
APPLE = load_profile("apple-m2-published")
USUAL = {"cpu": 4, "gpu": 4}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path / "cache"))


SMALL = {"REPLY_QUICK": 8, "BACKLOGS_QUICK": (1, 24), "LOADS_QUICK": (0.9,), "SHARES_QUICK": (0.0, 0.97)}


def shrink(patch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        patch.setattr(f"engine.experiments.offload_map.{name}", value)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


# --- effects ---


def noisy(draw: np.random.Generator, pairs: int, mean: float) -> list[float]:
    return (mean * (1 + 0.02 * draw.standard_normal(pairs))).tolist()


def test_the_better_of_equal_policies_is_no_gain() -> None:
    """Choosing the better in the runs that are judged would find gains in noise; here it must not."""
    draw = np.random.default_rng(0)
    found = []
    for seed in range(300):
        alone = noisy(draw, 5, 10.0)
        one = effect(alone, {name: noisy(draw, 5, 10.0) for name in "abcd"}, seed)
        assert one is not None
        found.append(one)
    assert abs(np.mean([e.gain for e in found])) < 0.002
    assert sum(e.verdict is Verdict.BETTER for e in found) / 300 <= 0.05
    assert sum(e.sure is False for e in found) / 300 >= 0.9


def test_a_true_gain_is_found_with_its_policy_and_interval() -> None:
    draw = np.random.default_rng(1)
    routed = {"good": noisy(draw, 5, 9.0), "bad": noisy(draw, 5, 11.0)}
    one = effect(noisy(draw, 5, 10.0), routed)
    assert one is not None and one.policies == ("good",) * 5
    assert one.verdict is Verdict.BETTER and one.sure
    assert one.low is not None and one.high is not None and 0 < one.low < one.gain < one.high
    assert one.gain == pytest.approx(0.1, abs=0.03)
    assert "better, 5 pairs" in one.words() and "\u00b1" in one.short()
    worse = effect(noisy(draw, 5, 10.0), {"bad": noisy(draw, 5, 11.0)})
    assert worse is not None and worse.verdict is Verdict.WORSE and worse.gain < 0


@pytest.mark.parametrize("pairs", [1, 2, 4])
def test_few_pairs_give_no_verdict(pairs: int) -> None:
    one = effect([10.0 + i / 100 for i in range(pairs)], {"a": [5.0 + i / 99 for i in range(pairs)]})
    assert one is not None and one.sure is None and one.gain == pytest.approx(0.5, abs=0.01)
    assert "too few for a verdict" in one.words()
    assert effect([], {"a": []}) is None


# --- jobs ---


def test_maps_share_the_cells_with_the_same_slots_and_every_pair_has_its_own_order(small: None) -> None:
    best = backlog_grid(APPLE, USUAL, quick=True)
    usual = at_usual_slots(best, {"cpu": 4, "gpu": 1})  # on this profile one slot is the best everywhere
    assert usual.points == best.points
    other = at_usual_slots(best, USUAL)
    assert set(other.points.values()).isdisjoint(best.points.values())
    jobs = map_jobs([best, usual], APPLE, range(4))
    assert len({j.name for j in jobs}) == len(jobs) == len(best.sources) * 3 * 4
    orders = {tuple(j.arm_name for j in jobs[i : i + 3]) for i in range(0, len(jobs), 3)}
    assert len(orders) == 6
    assert all(len({j.name[::2] for j in jobs[i : i + 3]}) == 1 for i in range(0, len(jobs), 3))


# --- the command ---


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished map of a small profile."""
    folder = tmp_path_factory.mktemp("map")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFRAMP_CACHE_DIR", str(folder / "cache"))
        shrink(patch)
        path = folder / "fast.json"
        path.write_text(json.dumps(profile_json(decode_s=0.02)), "utf-8")
        assert main(["map", "--quick", "--profile", str(path), "--out", str(folder / "out")]) == 0
    return folder / "out"


def test_every_cell_can_be_recomputed_from_its_run_files(drawn: Path) -> None:
    check_report(drawn)
    files = [json.loads(p.read_text("utf-8")) for p in (drawn / "runs").glob("*.json")]
    names = [p.stem for p in (drawn / "runs").glob("*.json")]
    seen = {}
    for name, run in zip(names, files, strict=True):
        assert serve_json(run["result"], DEFAULT_SLO) == run["figures"]
        point = re.sub(r"^pair-\d+-", "", name).removesuffix(f"-{run['arm']}")
        seen[point, run["arm"], run["seed"]] = run["figures"]
    maps = results(drawn)["maps"]
    assert {(m["map"], m["slots"], m["metric"]) for m in maps} >= {("backlog", "best", "mean_e2el_ms")}
    for one in maps:
        key, scale = one["metric"], BY_KEY[one["metric"]].scale
        assert len(one["cells"]) == (4 if one["map"] == "backlog" else 2) and one["measured"] == []
        for cell in one["cells"]:
            alone = [seen[cell["point"], "alone", n][key] * scale for n in range(5)]
            routed = [seen[cell["point"], p, n][key] * scale for n, p in enumerate(cell["policies"])]
            c = compare(alone, routed, True)
            assert cell["verdict"] == c.verdict
            assert cell["gain"] == pytest.approx(1 - sum(routed) / sum(alone), abs=1e-9)
            assert cell["low"] == pytest.approx(-c.high / c.baseline_mean)
            assert cell["high"] == pytest.approx(-c.low / c.baseline_mean)


def test_hatched_cells_are_those_without_a_difference(drawn: Path) -> None:
    one = next(m for m in results(drawn)["maps"] if m["map"] == "backlog" and m["metric"] == "duration")
    same = [c for c in one["cells"] if c["verdict"] == "no difference"]
    assert same and len(same) < len(one["cells"])
    for c in one["cells"]:
        assert (c["low"] <= 0 <= c["high"]) is (c["verdict"] == "no difference")
    text = (drawn / "charts" / "map-backlog-makespan.svg").read_text("utf-8")
    titles = re.findall(r"<g><title>(.*?)</title>", text)
    assert len(titles) % len(one["cells"]) == 0
    assert sum("no difference" in t for t in titles) >= len(same)
    assert all("simulated gain" in t for t in titles)


def test_a_second_call_runs_nothing_again(drawn: Path, small: None, capsys: Capture) -> None:
    before = {p: p.stat().st_mtime_ns for p in (drawn / "runs").iterdir()}
    first = results(drawn)
    assert main(["map", "--quick", "--profile", str(drawn.parent / "fast.json"), "--out", str(drawn)]) == 0
    assert {p: p.stat().st_mtime_ns for p in (drawn / "runs").iterdir()} == before
    assert results(drawn) == first


def test_interrupting_leaves_a_map_of_fewer_pairs_and_goes_on(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    path, out = tmp_path / "fast.json", tmp_path / "out"
    path.write_text(json.dumps(profile_json()), "utf-8")
    argv = ["map", "--quick", "--profile", str(path), "--pairs", "2", "--out", str(out)]
    runs, original = iter(range(10_000)), Simulated.run

    def impatient(self: Simulated, *args: Any) -> dict[str, Any]:
        if next(runs) == 40:
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(Simulated, "run", impatient)
    assert main(argv) == 130
    assert "Stopped" in capsys.readouterr().err
    assert results(out)["finished"] is False and "Stopped early" in (out / "report.md").read_text("utf-8")
    assert main(argv) == 0 and results(out)["finished"] is True


def test_measured_cells_stand_beside_the_simulated_ones(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The engine itself on the wall clock, through emulated backends: a few cells are run for real."""
    path, out = tmp_path / "fast.json", tmp_path / "out"
    path.write_text(json.dumps(profile_json(decode_s=0.0003)), "utf-8")
    monkeypatch.setattr("engine.commands.offload_map.some_cells", lambda grid, quick: [(1, 1)])
    argv = ["map", "--quick", "--emulate", str(path), "--real", "--pairs", "1", "--out", str(out)]
    assert main(argv) == 0
    one = next(m for m in results(out)["maps"] if m["map"] == "backlog" and m["slots"] == "best")
    (point,) = one["measured"]
    assert (point["x"], point["y"], point["verdict"]) == ("24", "97 %", "no verdict")
    files = {p.stem: json.loads(p.read_text("utf-8")) for p in (out / "measured" / "runs").iterdir()}
    assert len(files) == 3
    alone, routed = (
        files[f"pair-01-backlog-best-1-1-{arm}"]["figures"]["mean_e2el_ms"]
        for arm in ("alone", point["policies"][0])
    )
    assert point["gain"] == pytest.approx(1 - routed / alone)
    text = (out / "charts" / "map-backlog-mean-e2e.svg").read_text("utf-8")
    assert "Emulated, in real time: " in text and text.count("<circle") == 2  # and the legend
    table = (out / "measured-backlog-mean-e2el-ms.csv").read_text("utf-8")
    assert "24 requests, 97 % cached" in table


# --- the picture ---


def test_what_is_measured_what_is_sure_and_where_it_pays() -> None:
    cells = {
        (0, 0): Shade(0.0, False, "nothing"),
        (1, 0): Shade(0.2, True, "pays"),
        (0, 1): Shade(-0.1, True, "harms"),
        (1, 1): Shade(0.01, True, "a little"),
    }
    panel = Panel("P", "p", ("1", "2"), ("a", "b"), cells, "x", "y", {(1, 0): Shade(0.18, True, "measured")})
    tree = ElementTree.fromstring(heatmap("T", "s", [panel], Mark("SIMULATED", "x")))
    space = "{http://www.w3.org/2000/svg}"
    groups = {g.findtext(f"{space}title"): g for g in tree.iter(f"{space}g")}
    assert set(groups) == {"nothing", "pays measured", "harms", "a little"}
    assert len(groups["nothing"].findall(f"{space}line")) > 20  # the hatch
    assert all(not groups[n].findall(f"{space}line") for n in ("pays measured", "harms", "a little"))
    assert [t.text for t in groups["pays measured"].findall(f"{space}text")] == ["+20", "+18"]
    for g in groups.values():  # no line of the hatch leaves its cell
        box = g.find(f"{space}rect")
        assert box is not None
        x, y, w, h = (float(box.get(k) or 0) for k in ("x", "y", "width", "height"))
        for line in g.findall(f"{space}line"):
            assert all(x - 0.01 <= float(line.get(k) or 0) <= x + w + 0.01 for k in ("x1", "x2"))
            assert all(y - 0.01 <= float(line.get(k) or 0) <= y + h + 0.01 for k in ("y1", "y2"))
    thick = [e for e in tree.iter(f"{space}line") if e.get("stroke-width") == "2.5"]
    assert len(thick) == 2 + 1  # around the one cell that pays, and the legend


@pytest.fixture
def any_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids at once: no search for the best slots of every cell."""
    arm = Arm("forced-gpu", tuple(USUAL.items()), baseline=True)
    monkeypatch.setattr("engine.experiments.offload_map.baseline_arm", lambda *args: (arm, []))


@pytest.mark.parametrize(("columns", "rows"), [(5, 5), (10, 7)])
def test_marks_and_figures_do_not_cover_each_other(columns: int, rows: int) -> None:
    """Both sizes of the map, every cell measured: no figure runs into a mark or out of its cell."""
    names = tuple(str(i) for i in range(columns)), tuple(str(i) for i in range(rows))
    cells = {(i, j): Shade(-0.38, (i + j) % 2 == 0, "c") for i in range(columns) for j in range(rows)}
    panel = Panel("P", "p", *names, cells, "x", "y", cells)
    tree = ElementTree.fromstring(heatmap("T", "s", [panel, panel], Mark("SIMULATED", "x")))
    space = "{http://www.w3.org/2000/svg}"
    groups = list(tree.iter(f"{space}g"))
    assert len(groups) == 2 * columns * rows
    for g in groups:
        box, circle = g.find(f"{space}rect"), g.find(f"{space}circle")
        below, inside = g.findall(f"{space}text")
        assert box is not None and circle is not None

        def at(part: Any, key: str) -> float:
            return float(part.get(key))

        lowest = at(circle, "cy") + at(circle, "r")
        assert at(box, "y") < at(circle, "cy") - at(circle, "r")
        assert lowest <= at(below, "y") - 0.75 * at(below, "font-size")  # the height of digits
        assert at(below, "y") < at(box, "y") + at(box, "height")
        for text, room in ((below, at(box, "width")), (inside, 2 * at(circle, "r"))):
            assert 0.6 * at(text, "font-size") * len(text.text or "") < room


def test_the_cells_to_measure_are_on_the_map(any_slots: None) -> None:
    for quick in (True, False):
        grid = backlog_grid(APPLE, USUAL, quick)
        cells = some_cells(grid, quick)
        assert len(cells) == (4 if quick else 6) and set(cells) <= set(grid.sources)


def test_an_effect_without_a_run_is_left_out(any_slots: None, tmp_path: Path) -> None:
    done = run_jobs([], Simulated(APPLE, 0.0), {}, tmp_path)
    assert effects(done, backlog_grid(APPLE, USUAL, True), "duration", range(3)) == {}
    assert Effect(0.1, None, None, Verdict.NONE, ("a",)).short() == "+10.0"


@pytest.mark.parametrize(("at_usual", "panels"), [(0.001, 1), (0.3, 2)])
def test_a_second_map_that_says_the_same_is_not_drawn(
    at_usual: float, panels: int, any_slots: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With other slots the runs differ; only a cell that pays or harms makes them worth a second picture."""
    best = backlog_grid(APPLE, USUAL, quick=True)
    usual = at_usual_slots(best, {"cpu": 4, "gpu": 9})

    def found(self: Told, grid: Grid, metric: str, policies: Any = None) -> dict[Any, Effect]:
        gain = 0.001 if grid.best else at_usual
        return {c: Effect(gain, 0.0005, 0.4, Verdict.BETTER, ("a",) * 5) for c in grid.sources}

    monkeypatch.setattr(Told, "effects", found)
    told = Told(
        [best, usual], run_jobs([], Simulated(APPLE, 0.0), {}, tmp_path), range(5), None, APPLE, USUAL
    )
    report, _ = map_report(told, Mark("SIMULATED", "x"), (), ["offramp"])
    drawings = [p.drawing for s in report.sections for p in s.parts if isinstance(p, Chart)]
    assert len(drawings) == 2
    for drawing in drawings:
        assert drawing.count("GPU at ") == panels
        assert ("the map is the same" in drawing) is (panels == 1)
