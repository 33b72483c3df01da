"""The result card: honest about single runs, and what can be taken away from it."""

import json

import pytest
from fake_engine import CPU, GPU, golden_scene
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QImage
from PySide6.QtTest import QTest
from test_charts import keep_panels, texts, too_wide  # noqa: F401

from app.series.outcome import NO_VERDICT, ONE_RUN, RunSummary, as_markdown, headline, metrics, notes, partner
from engine.events import BurstDone, BurstStarted

LABELS = {CPU: "CPU", GPU: "GPU"}


def result(
    policy="isolated-rates",
    makespan=10.35,
    count=8,
    run_id="run-1",
    preset="seed-warm-8",
    failed=0,
    stopped=0,
):
    reasons = ["error"] * failed + ["abort"] * stopped + ["length"] * count
    requests = [
        {
            "id": i + 1, "backend": CPU if i == count - 1 else GPU, "ttft_s": 0.03 + 0.7 * i,
            "e2e_s": 3.2 + i, "output_tokens": 128, "finish_reason": reasons[i],
        }
        for i in range(count)
    ]  # fmt: skip
    return {
        "preset": preset, "policy": policy, "makespan_s": makespan, "output_throughput": 1024 / makespan,
        "requests_per_backend": {CPU: 1, GPU: count - 1}, "requests": requests, "run_id": run_id,
    }  # fmt: skip


def burst(rig, **options) -> None:
    data = result(**options)
    rig.engine.publish(
        BurstStarted(data["run_id"], data["preset"], data["policy"], 8, 1_000.0, ()),
        BurstDone(data["run_id"], False, data),
    )
    rig.settle()


def test_a_finished_burst_brings_its_card(rig) -> None:
    rig.engine.publish(*golden_scene())
    burst(rig)
    card = rig.window.card
    assert card.isVisible() and card.emulated.isVisible()
    said = "8 requests in 10.35 s. 7 requests went to the GPU, 1 to the CPU."
    assert card.page.accessibleName().startswith(said)
    assert ONE_RUN in card.page.accessibleName()
    QTest.keyClick(card, Qt.Key.Key_Escape)
    assert not card.isVisible()
    rig.window.actions_by_name["result"].trigger()
    assert card.isVisible()


def test_the_gaps_between_tokens_are_among_the_figures(rig) -> None:
    """The result does not hold when each token came; the window has seen it."""
    rig.engine.publish(*golden_scene())
    burst(rig)
    shown = {m.name: m.now for m in metrics(rig.window.wishes.runs[-1])}
    assert shown["ITL p95"] == pytest.approx(46.4, abs=0.1)
    assert "| ITL p95, ms | 46.4 |" in rig.window.card.shown.markdown()


def test_a_stopped_burst_has_no_card(rig) -> None:
    rig.engine.publish(*golden_scene(), BurstDone("run-1", True, result()))
    rig.settle()
    assert not rig.window.card.isVisible()


def test_another_policy_stands_beside_it_without_a_verdict(rig) -> None:
    burst(rig, run_id="a", policy="forced-gpu", makespan=11.47)
    burst(rig, run_id="b")
    shown = rig.window.card.shown
    assert shown is not None and shown.before is not None and shown.before.policy == "forced-gpu"
    text = as_markdown(shown.now, shown.before, LABELS)
    assert NO_VERDICT in text and "| Makespan, s | 11.47 | 10.35 | \N{MINUS SIGN}9.8 % |" in text
    assert "faster" not in text and "**EMULATED**" in text
    burst(rig, run_id="c", preset="cold-12")
    assert rig.window.card.shown.before is None


def test_only_runs_that_can_stand_beside_each_other_do() -> None:
    one, two = RunSummary(result("a")), RunSummary(result("b"), "Apple M2")
    assert partner([one]) is None and partner([one, two]) is None
    assert partner([one, two, RunSummary(result("b"))]) is one
    assert partner([one, RunSummary(result("a"))]) is None


def test_a_run_that_was_cut_says_so_and_stands_beside_none() -> None:
    whole, cut = RunSummary(result("a")), RunSummary(result("b", failed=2, stopped=1))
    assert not cut.whole and whole.whole
    assert partner([whole, cut]) is None and partner([cut, whole]) is None
    assert [r.e2e_s is None for r in cut.requests()] == [True] * 3 + [False] * 5
    assert {m.name: m.now for m in metrics(cut)}["E2E p50"] == whole.values("e2e_s")[5]
    assert "done until then" in " ".join(notes(cut, None)) and len(notes(whole, None)) == 1
    for failed, stopped, words in (
        (0, 0, "8 requests in 10.35 s"),
        (4, 0, "4 of 8 requests ended with error"),
        (0, 1, "1 of 8 requests was stopped"),
        (1, 2, "1 of 8 requests ended with error, 2 were stopped"),
        (8, 0, "8 of 8 requests ended with error"),
    ):
        assert headline(RunSummary(result(failed=failed, stopped=stopped))) == words


def test_percentiles_are_values_that_occurred() -> None:
    found = {m.name: m.now for m in metrics(RunSummary(result()))}
    assert found["TTFT p50"] == pytest.approx(2.13) and found["TTFT p95"] == pytest.approx(4.93)
    assert found["E2E p95"] == pytest.approx(10.2)


def test_copy_json_png_and_svg(rig, tmp_path) -> None:
    rig.engine.publish(*golden_scene())
    burst(rig)
    card = rig.window.card
    card.buttons["copy"].click()
    assert QGuiApplication.clipboard().text().startswith("### seed-warm-8, isolated-rates: 8 requests")
    for kind in ("json", "png", "svg"):
        assert card.save(str(tmp_path / f"result.{kind}"), kind)
    assert json.loads((tmp_path / "result.json").read_text())["runs"][0]["emulation"]
    assert QImage(str(tmp_path / "result.png")).width() == 2688
    assert "EMULATED" in (tmp_path / "result.svg").read_text("utf-8")
    assert not card.save(str(tmp_path / "nowhere" / "x.svg"), "svg")
    assert rig.window.toast.isVisible()


@pytest.mark.parametrize("failed", [0, 1])
@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)])
@pytest.mark.parametrize("count", [1, 8, 48])
def test_nothing_is_wider_than_its_place(rig, texts, size, count, failed) -> None:  # noqa: F811
    rig.engine.publish(*golden_scene())
    rig.window.resize(*size)
    burst(rig, run_id="a", policy="forced-slowest", count=count)
    burst(rig, run_id="b", policy="least-requests", count=count, failed=failed)
    rig.settle()
    texts.clear()
    rig.window.card.grab()
    assert too_wide(texts) == []
    assert rig.window.card.card.geometry().bottom() < size[1]
