"""No text is cut in what looks back: the past, what-ifs, regret, past runs; keys reach all of it."""

import pytest
from fake_engine import CPU, GPU, golden_scene
from painted import watched_text
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton
from test_hindsight import PATIENCE_MS, REGRET, case, own_runs, printing  # noqa: F401
from test_result import burst, result
from test_window import clipped

from engine.events import BurstDone, PriceNews
from engine.recording import runs_dir
from tests.runs import write_run

SIZES = [(1280, 720), (1920, 1080)]


def golden(rig) -> None:
    write_run(runs_dir(), "run-1", ended=0)
    rig.engine.publish(*golden_scene(), PriceNews(GPU, 1.31, 0.21, 0.4))
    rig.settle()


def looking_back(rig) -> None:
    golden(rig)
    rig.window.time_cursor.go_to(1_001.2)
    rig.qtbot.waitUntil(lambda: not rig.window.time_cursor._due.isActive())


def what_if(rig) -> None:
    golden(rig)
    hindsight = rig.window.looking_back.hindsight
    policies = ("total-delay", "batched-clear", "isolated-rates", "least-requests", "forced-cpu-1")
    lines = [case("policy", name) for name in policies]
    hindsight._command = printing(
        {"total": 7}, case("same", ""), case("elsewhere", GPU, e2e_s=1_234.5), *lines
    )
    rig.window.show_last_receipt()
    rig.window.sheet.ask_what_if()
    rig.qtbot.waitUntil(lambda: not hindsight.what_if("run-1").running, timeout=PATIENCE_MS)
    bar = rig.window.sheet.scroll.verticalScrollBar()
    bar.rangeChanged.connect(lambda _least, most: bar.setValue(most))


def no_what_if(rig) -> None:
    golden(rig)
    hindsight = rig.window.looking_back.hindsight
    words = "r.jsonl ran on backends without step times: run `offramp profile`, then the burst again. "
    hindsight._command = printing({"error": 3 * words}, code=1)
    rig.window.show_last_receipt()
    rig.window.sheet.ask_what_if()
    rig.qtbot.waitUntil(lambda: not hindsight.what_if("run-1").running, timeout=PATIENCE_MS)


def regret(rig) -> None:
    rig.window.looking_back.hindsight._command = printing({"total": 1}, REGRET)
    golden(rig)
    burst(rig, run_id="a", policy="forced-slowest")
    rig.engine.publish(BurstDone("a", False, result(run_id="a", policy="forced-slowest") | {"run_file": "x"}))
    rig.window.looking_back.hindsight._regrets.clear()
    rig.window.looking_back.hindsight.judge(result(run_id="a") | {"run_file": "x"})
    card = rig.window.card
    rig.qtbot.waitUntil(lambda: card.shown.regret and card.shown.regret.regret, timeout=PATIENCE_MS)


def past_requests(rig) -> None:
    path = write_run(runs_dir(), "p", "cold-12", profile="apple-m2-published")
    rig.window.looking_back.hindsight._command = printing(forever=True)
    rig.window.looking_back.show_past(path)
    rig.window.card.requests_button.click()


SCENES = {  # and a text that only this one paints
    looking_back: "1.20 s",
    what_if: "This one on the GPU",
    no_what_if: "on the burst's own calibration",
    regret: "each arrival was placed for itself",
    past_requests: "12",
}


@pytest.mark.parametrize(("scene", "words"), SCENES.items(), ids=[s.__name__ for s in SCENES])
def test_no_painted_text_is_cut(rig, scene, words) -> None:
    scene(rig)
    rig.settle()
    found = []
    for size in SIZES:
        rig.window.resize(*size)
        rig.settle()
        for mode in ("dark", "light"):
            rig.themes.set_mode(mode)
            with watched_text() as (seen, cuts):
                rig.settle()
                rig.window.grab()
            assert words in seen
            found += [f"{size} {mode}, {cut}" for cut in cuts]
            found += [f"{size} {mode}, {text}" for text in clipped(rig.window)]
    assert not found, "\n".join(dict.fromkeys(found))


def test_no_label_of_the_history_is_cut(rig) -> None:
    write_run(runs_dir(), "cut", "seed-warm-8", ended=1)
    write_run(runs_dir(), "other", version=99, stamp="20261202-120000")
    history = rig.window.looking_back.show_history()
    rig.qtbot.wait(1)
    assert clipped(history.window()) == []


def reached_by_tab(rig, start, most: int = 80) -> set[str]:
    """Accessible names of all that the Tab key comes by."""
    widget, names = start, set()
    for _ in range(most):
        widget = widget.nextInFocusChain()
        if widget.isVisible() and widget.focusPolicy() & Qt.FocusPolicy.TabFocus:
            names.add(widget.accessibleName())
    return names


def test_what_looks_back_can_be_reached_by_keyboard(rig) -> None:
    looking_back(rig)
    chain = reached_by_tab(rig, rig.window.toolbar.run_button, 400)
    assert {"Moment that is shown", "Back to live"} <= chain
    rig.window.show_last_receipt()
    assert "What if it had gone elsewhere" in reached_by_tab(rig, rig.window.sheet, 400)
    rig.window.sheet.close_sheet()
    burst(rig, run_id="a")
    card = rig.window.card
    chain = reached_by_tab(rig, card, 400)
    assert {"Show the requests", "Run history"} <= chain
    buttons = [b for b in card.findChildren(QAbstractButton) if b.isVisible()]
    assert all(b.accessibleName() for b in buttons) and len(buttons) >= 7
    assert CPU in rig.board.backends
