"""What a backend's panel says of its device, load and prices, and routing of the length it expects."""

from dataclasses import replace

import pytest
from bursts import golden
from fake_engine import CPU, GPU, golden_scene
from test_charts import keep_panels, texts, too_wide  # noqa: F401

from app.backend_rows import busy_share
from app.series.board import BackendView
from app.series.decision import estimate_words
from app.widgets.device_badge import NO_GPU, device_words
from engine.events import BackendState, PriceNews
from engine.step_report import BackendLoad, StepReport


def view_with(*spans: tuple[float, float]) -> BackendView:
    view = BackendView(golden().backends[GPU].info, BackendState.READY)
    view.steps.extend(StepReport(GPU, i, start, end, 1) for i, (start, end) in enumerate(spans))
    return view


def test_busy_share_counts_the_last_two_seconds() -> None:
    assert busy_share(view_with(), 5.0) is None
    assert busy_share(view_with((0.0, 10.0)), 10.0) == 1.0
    assert busy_share(view_with((0.0, 8.5), (9.0, 9.5)), 10.0) == pytest.approx(0.5)
    assert busy_share(view_with((0.0, 1.0)), 10.0) == 0.0
    assert busy_share(view_with((9.5, 9.75)), 10.0) == pytest.approx(0.5), "since its first step, if later"


def test_the_step_in_flight_counts_while_something_is_in_its_slots() -> None:
    view = view_with((8.0, 9.0))
    assert busy_share(view, 10.0) == pytest.approx(0.5)
    view.load = golden().backends[GPU].load
    assert any(r.active for r in view.load.requests) and busy_share(view, 10.0) == 1.0
    view.load = BackendLoad(tuple(replace(r, slot=-1) for r in view.load.requests))
    assert busy_share(view, 10.0) == pytest.approx(0.5), "a queue alone computes nothing"


def test_the_badge_names_the_device_really_used(rig) -> None:
    rig.engine.publish(*golden_scene())
    rig.settle()
    badge = rig.window.backends.panels[GPU]._badge
    assert not badge.isVisible(), "an emulated backend has its own mark"
    views = rig.board.backends
    views[GPU].info = replace(
        views[GPU].info, emulated=False, device="cuda:0", device_name="H200", format="bf16"
    )
    views[CPU].info = replace(views[CPU].info, emulated=False, device="cpu", threads=3, format="int4")
    rig.window.backends.refresh({"backends"}, 1_002.8)
    assert badge.isVisible() and badge.text() == "cuda:0, bf16"
    assert badge.accessibleName() == "Runs on cuda:0, bf16"
    assert rig.window.backends.panels[CPU]._badge.text() == "cpu, int4, 3 threads"
    views[GPU].info = replace(views[GPU].info, device="cpu")
    rig.window.backends.refresh({"backends"}, 1_002.8)
    assert badge.toolTip() == NO_GPU and badge.property("tone") == "warning"


def test_threads_are_those_of_the_last_step() -> None:
    info = replace(golden().backends[CPU].info, device="cpu", threads=3, format="int8-dynamic")
    assert device_words(info, 0) == "cpu, int8-dynamic, 3 threads"
    assert device_words(info, 1) == "cpu, int8-dynamic, 1 thread"
    assert device_words(info, 1, short=True) == "cpu, int8-dynamic"
    assert device_words(replace(info, device="mps", format="float32"), 3) == "mps, float32"


@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)])
def test_load_step_and_correction_are_told_at_every_size(rig, texts, size) -> None:  # noqa: F811
    rig.window.resize(*size)
    rig.engine.publish(*golden_scene(), PriceNews(GPU, 1.02, 0.05, 0.12))
    rig.settle()
    rig.settle()
    panel = rig.window.backends.panels[GPU]
    shown = panel._slots_phrase.text() + (panel._step.text() if panel._step.isVisible() else "")
    for words in ("4 of 4 active", "busy 100 %", "step 46.4 ms", "1.02× predicted"):
        assert words in shown
    texts.clear()
    rig.window.grab()
    assert too_wide(texts) == []


def test_routing_tells_the_expected_length_and_its_error(rig, texts) -> None:  # noqa: F811
    rig.engine.publish(*golden_scene())
    rig.settle()
    line = rig.window.routing.decision_line
    assert line.estimate[0] == "128 tokens out expected, error not known yet"
    rig.engine.publish(PriceNews(CPU, 1.0, 0.05, 0.123))
    rig.settle()
    assert line.estimate == estimate_words(128, 0.123)
    assert "such estimates are 12 % off" in line.accessibleName() and "12 % off" in line.toolTip()
    for width in (1920, 1280):
        rig.window.resize(width, 720)
        rig.settle()
        texts.clear()
        line.grab()
        drawn = [text for text, *_ in texts if text in line.estimate]
        assert len(drawn) == 1, "one form of it fits"


def test_the_forms_get_shorter() -> None:
    for words in (estimate_words(1, None), estimate_words(1_000, 0.5)):
        assert sorted(words, key=len, reverse=True) == list(words)
    assert estimate_words(1, None)[1] == "1 token out expected"
