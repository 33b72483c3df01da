"""Compare A/B: progress, verdicts, stopping, failing; the engine's own statistics, invented runs."""

import json
import random

import pytest
from fake_engine import CPU, GPU, golden_scene
from test_charts import keep_panels, texts, too_wide  # noqa: F401

from app.comparison import Comparer, best_alone, same_setting, workload_of
from app.series.verdict import Line, Verdict, interval
from engine.errors import BackendError
from engine.experiments.arms import Arm
from engine.experiments.source import preset_source
from engine.experiments.svg import interval_words
from engine.paths import data_dir
from engine.profiling.profile import load_profile
from engine.simulation.capacity import preset_capacity_rps
from engine.simulation.simulate import fake_tokenise

SEED = 5


class Invented:
    """A place that makes up runs: `speed` is the makespan of a policy."""

    def __init__(self, drain, speed: dict[str, float], fail_at: int = 0) -> None:
        self.drain, self.speed, self.fail_at, self.runs = drain, speed, fail_at, 0

    def run(self, source, arm, seed: int, draw: str) -> dict:
        self.drain()
        self.runs += 1
        if self.runs == self.fail_at:
            raise BackendError("A backend stopped: restart it.")
        makespan = self.speed[arm.policy] + random.Random(draw).uniform(-0.1, 0.1)
        times = [makespan * (i + 1) / 8 for i in range(8)]
        requests = [
            {
                "id": i + 1, "backend": GPU, "arrival_s": 0.0, "prompt_tokens": 516, "cached_tokens": 496,
                "output_tokens": 2, "ttft_s": t / 2, "tpot_s": t / 2, "e2e_s": t, "queue_s": 0.0,
                "finish_reason": "length", "predicted_s": None, "token_times_s": [t / 2, t], "receipt": None,
            }
            for i, t in enumerate(times)
        ]  # fmt: skip
        return {
            "preset": source.name, "policy": arm.policy, "makespan_s": makespan, "requests": requests,
            "output_throughput": 16 / makespan, "requests_per_backend": {CPU: 0, GPU: 8}, "emulated": True,
            "backends": [{"name": CPU}, {"name": GPU}],
        }  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    """No calibration of this machine."""
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OFFRAMP_DATA_DIR", str(tmp_path / "data"))


def invent(rig, speed, **options) -> Comparer:
    comparer = rig.window.wishes.comparer
    comparer._make_place = lambda engine, drain: Invented(drain, speed, **options)
    comparer._new_seed = lambda: SEED  # by chance alone, one seed in twenty finds a difference in noise
    return comparer


def start(rig, pairs: int = 5):
    form = rig.window.wishes.show_compare()
    form.b.setCurrentText("least-requests")
    form.a.setCurrentText("isolated-rates")
    form.pairs.setValue(pairs)
    form.start_button.click()


def test_a_clear_difference_gets_a_verdict_with_its_interval(rig, qtbot) -> None:
    invent(rig, {"isolated-rates": 11.47, "least-requests": 10.35})
    start(rig)
    assert "run" in rig.window.toolbar.comparing and not rig.window.toolbar.run_button.isEnabled()
    qtbot.waitUntil(lambda: rig.window.card.isVisible(), timeout=6_000)
    card = rig.window.card
    said = card.page.accessibleName()
    assert said.startswith("least-requests is faster: \N{MINUS SIGN}")
    assert "95 % interval" in said and "stays clear of zero" in said
    assert "better" in card.shown.markdown() and '"verdict": "better"' in card.shown.json()
    assert rig.window.toolbar.run_button.isEnabled() and not rig.window.toolbar.comparing


def test_the_fastest_alone_at_its_best_slots_is_run_beside_them(rig, qtbot) -> None:
    """On the published profile one slot is the best: both policies at four lose against it."""
    rig.session.args.emulate = "apple-m2-published"
    invent(rig, {"isolated-rates": 11.47, "least-requests": 10.35, "forced-gpu": 3.5})
    start(rig)
    qtbot.waitUntil(lambda: rig.window.card.isVisible(), timeout=10_000)
    said = rig.window.card.page.accessibleName()
    assert "The fastest alone at its best slot count (forced-gpu, gpu 1 slot) takes 3." in said
    assert "; least-requests takes 19" in said and "% longer than that (worse)." in said
    assert "forced-gpu, gpu 1 slot" in rig.window.card.shown.markdown()
    assert rig.window.wishes.comparer._total == 15
    folder = next((data_dir() / "comparisons").iterdir())
    runs = [json.loads(p.read_text("utf-8")) for p in (folder / "runs").iterdir()]
    assert {r["arm"] for r in runs} == {"isolated-rates", "least-requests", "forced-gpu@gpu=1"}


def test_a_baseline_that_was_chosen_is_not_run_twice(rig) -> None:
    slots = {"cpu": 4, "gpu": 1}
    best = best_alone("apple-m2-published", preset_source("seed-warm-8"), slots)
    for policy, same in (("forced-gpu", True), ("forced-fastest", True), ("total-delay", False)):
        assert same_setting(best, Arm(policy, tuple(slots.items())), slots) is same
    assert not same_setting(best, Arm("forced-gpu", (("cpu", 4), ("gpu", 4))), {"cpu": 4, "gpu": 4})
    assert best_alone("apple-m2-published", preset_source("seed-warm-8"), {"cpu-1": 4, "cpu-2": 4}) is None


def test_without_a_calibration_it_says_so(rig, qtbot) -> None:
    invent(rig, {"isolated-rates": 11.47, "least-requests": 10.35})
    start(rig)
    qtbot.waitUntil(lambda: rig.window.card.isVisible(), timeout=6_000)
    assert "Not calibrated yet: the fastest backend alone" in rig.window.card.page.accessibleName()


def test_no_difference_and_too_few_pairs_are_said(rig, qtbot) -> None:
    invent(rig, {"isolated-rates": 10.0, "least-requests": 10.0})
    start(rig)
    qtbot.waitUntil(lambda: rig.window.card.isVisible(), timeout=6_000)
    assert rig.window.card.page.accessibleName().startswith("No difference found.")
    rig.window.card.close_card()
    start(rig, pairs=2)
    qtbot.waitUntil(lambda: rig.window.card.isVisible(), timeout=6_000)
    assert rig.window.card.page.accessibleName().startswith("No verdict: 2 of the five pairs it takes.")


def test_a_failing_run_is_said_and_everything_works_again(rig, qtbot) -> None:
    invent(rig, {"isolated-rates": 10.0, "least-requests": 10.0}, fail_at=3)
    start(rig)
    qtbot.waitUntil(lambda: rig.window.toast.isVisible(), timeout=6_000)
    assert "A backend stopped" in rig.window.toast.label.text()
    assert rig.window.toolbar.run_button.isEnabled()


def test_stop_all_ends_a_comparison(rig, qtbot) -> None:
    comparer = invent(rig, {"isolated-rates": 10.0, "least-requests": 10.0})
    start(rig, pairs=50)
    rig.window.wishes.stop_all()
    qtbot.waitUntil(lambda: not comparer.running, timeout=6_000)


def test_closing_while_comparing(rig, qtbot) -> None:
    comparer = invent(rig, {"isolated-rates": 10.0, "least-requests": 10.0})
    start(rig, pairs=50)
    rig.window.close()
    assert not comparer.running


def test_the_same_policy_twice_is_not_compared(rig) -> None:
    form = rig.window.wishes.show_compare()
    form.a.setCurrentText("least-requests")
    form.b.setCurrentText("least-requests")
    form._look()
    assert not form.start_button.isEnabled() and "same policy" in form.note.text()
    form.close()


@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)])
def test_nothing_is_wider_than_its_place(rig, qtbot, texts, size) -> None:  # noqa: F811
    rig.engine.publish(*golden_scene())
    rig.window.resize(*size)
    rig.settle()
    invent(rig, {"isolated-rates": 11.47, "least-requests": 10.35})
    rig.window.wishes.compare("seed-warm-8", "isolated-rates", "least-requests", 5)
    qtbot.waitUntil(lambda: rig.window.card.isVisible(), timeout=6_000)
    texts.clear()
    rig.window.card.grab()
    assert too_wide(texts) == []


@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)])
def test_the_line_about_the_baseline_has_room(rig, qtbot, texts, size) -> None:  # noqa: F811
    rig.session.args.emulate = "apple-m2-published"
    rig.window.resize(*size)
    invent(rig, {"isolated-rates": 11.47, "least-requests": 10.35, "forced-gpu": 3.5})
    rig.window.wishes.compare("seed-warm-8", "isolated-rates", "least-requests", 5)
    qtbot.waitUntil(lambda: rig.window.card.isVisible(), timeout=10_000)
    texts.clear()
    rig.window.card.grab()
    assert too_wide(texts) == []


def test_arrivals_follow_the_capacity_of_the_profile() -> None:
    """Where no calibration tells it, they are those of the preset by itself."""
    slots = {"cpu": 4, "gpu": 4}
    paced = workload_of("steady-0.8", "batching-gpu", slots).build(fake_tokenise, 0)
    assert paced.capacity_rps == preset_capacity_rps(load_profile("batching-gpu"), "steady-0.8", slots)
    alone = preset_source("steady-0.8").build(fake_tokenise, 0)
    assert paced.requests[-1].offset_s != alone.requests[-1].offset_s
    assert workload_of("steady-0.8", "no such profile", slots).build(fake_tokenise, 0) == alone
    assert workload_of("seed-warm-8", "batching-gpu", slots).build(fake_tokenise, 0).capacity_rps is None


@pytest.mark.parametrize(
    ("low", "high", "ends", "words"),
    [
        (-19.2, -0.04, "\N{MINUS SIGN}19.20 to \N{MINUS SIGN}0.04 %", "stays clear"),
        (0.004, 12.0, "+0.004 to +12.000 %", "stays clear"),
        (-3.0, 0.0, "\N{MINUS SIGN}3.0 to 0.0 %", "holds zero"),
        (-3.04, 8.06, "\N{MINUS SIGN}3.0 to +8.1 %", "holds zero"),
    ],
)
def test_an_end_beside_zero_does_not_read_as_zero(low, high, ends, words) -> None:
    line = Line("Makespan", "s", 2, 11.0, 10.0, -9.6, low, high, "better")
    told = Verdict("seed-warm-8", "a", "b", 5, True, (), (), (line,))
    assert interval(line) == ends
    assert f"{ends}, {words}" in told.sentence
    assert not high or ends.replace(" to", " % to") == interval_words(low / 100, high / 100)
