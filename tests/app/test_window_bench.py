"""`offramp bench window`: what is run in which order, how it is judged, and a real try on tiny backends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication, QWidget

from app.probes import Heartbeat, PaintCounter, spread
from app.window_bench import judged, main, order, scenarios
from engine.workloads.presets import PRESETS

REPOSITORY = Path(__file__).resolve().parents[2]


def found(**changes: object) -> dict:
    base = {
        "heartbeat_ms": {"p50": 10.0, "p99": 20.0, "max": 60.0},
        "own_time_ms": {},
        "worst_gaps": [],
        "drag_ms": {"p50": 10.0, "p99": 20.0, "max": 30.0},
        "redraws_per_s": {"routing": 9.8},
        "tok_s": {"with": [98.0, 99.0, 80.0], "without": [100.0, 100.0]},
        "rss_mb": [200.0, 205.0, 203.5],
        "seconds": 1.0,
        "load_average": 0.1,
    }
    return {**base, **changes}


def test_runs_alternate_and_every_repeat_has_the_window() -> None:
    assert order(2, 3) == ["with", "without", "without", "with", "with"]
    assert order(3, 10).count("with") == 10 and order(3, 10).count("without") == 3


def test_one_core_is_free_where_budgets_hold() -> None:
    bounded, open_ended = scenarios(2)
    assert bounded.bounded and "emulated:gpu" in bounded.options[1]
    assert not open_ended.bounded and open_ended.options == ("--backends", "cpu,cpu", "--threads", "1")
    assert scenarios(8)[1].options[-1] == "4"


@pytest.mark.parametrize(
    ("changes", "within"),
    [
        ({}, True),
        ({"heartbeat_ms": {"p50": 10, "p99": 20, "max": 101}}, False),
        ({"heartbeat_ms": {"p50": 10, "p99": 51, "max": 60}}, False),
        ({"redraws_per_s": {"routing": 12.0}}, False),
        ({"tok_s": {"with": [94.0], "without": [100.0]}}, False),
    ],
)
def test_a_bounded_scenario_is_judged_by_every_budget(changes, within) -> None:
    bounded, open_ended = scenarios(2)
    row = judged(bounded, found(**changes))
    assert row["within_budget"] is within
    assert judged(open_ended, found(**changes))["within_budget"] is None
    assert {"name", "bounded", "heartbeat_ms", "redraws_per_s", "throughput_ratio", "rss_growth_mb"} <= set(
        row
    )


def test_the_ratio_is_the_median_of_pairs_and_growth_is_first_to_last() -> None:
    row = judged(scenarios(2)[0], found())
    assert row["throughput_ratio"] == 0.985 and row["rss_growth_mb"] == 3.5


def test_options_that_make_no_sense_are_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["--pairs", "3", "--repeats", "2"])
    assert "no fewer repeats" in capsys.readouterr().err


def test_the_heart_beats_and_the_open_gap_counts(qtbot) -> None:
    heart = Heartbeat()
    heart.start()
    qtbot.waitUntil(lambda: len(heart.gaps_ms) >= 3)
    beats = len(heart.gaps_ms)
    heart.stop()
    heart.stop()
    assert len(heart.gaps_ms) == beats + 1 == len(heart.own_ms)
    first, *rest = heart.worst(3)
    assert first["gap_ms"] == round(max(heart.gaps_ms), 1) and len(rest) == 2
    assert all(0 < gap["at_s"] <= heart.at_s[-1] + 0.005 for gap in (first, *rest))
    assert spread([1.0, 2.0, 100.0]) == {"p50": 2.0, "p99": 100.0, "max": 100.0}


def test_repaints_are_those_of_the_busiest_part(qtbot) -> None:
    panel = QWidget()
    qtbot.addWidget(panel)
    part = QWidget(panel)
    with qtbot.waitExposed(panel):
        panel.show()
    counter = PaintCounter({"panel": panel})
    counter.begin()
    for _ in range(3):
        part.repaint()
    counter.end()
    part.repaint()
    QApplication.processEvents()
    assert counter.most() == {"panel": 3}


def test_a_real_window_is_measured_on_tiny_backends(tmp_path) -> None:
    spec = {
        "options": ["--backends", "cpu", "--load-format", "dummy", "--architecture", "tiny"],
        "preset": "cold-12",
        "policy": "forced-cpu",
        "order": ["with", "without"],
        "requests": 2,
    }  # fmt: skip
    assert spec["preset"] in PRESETS
    done = subprocess.run(
        [sys.executable, "-m", "app.bench_child", json.dumps(spec)],
        cwd=REPOSITORY,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    row = judged(scenarios(2)[0], json.loads(done.stdout))
    assert row["heartbeat_ms"]["max"] > 0 and row["throughput_ratio"] > 0
    assert set(row["redraws_per_s"]) >= {"toolbar", "prompt", "backend cpu", "routing", "requests"}
    assert max(row["redraws_per_s"].values()) > 0
    assert 0 < row["drag_ms"]["p50"] <= row["drag_ms"]["max"] and row["worst_gaps"][0]["gap_ms"] > 0
