"""What-ifs in the receipt and regret on the result card, with the real child and with ones that misbehave."""

import json
import sys

import pytest
from fake_engine import GPU, golden_scene
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from test_charts import keep_panels, texts, too_wide  # noqa: F401
from test_result import burst, result

from app.hindsight import COMPUTING, STOPPED, WAITS
from app.series.hindsight import SIMULATED, TYPED
from engine.events import BurstDone, BurstStarted
from engine.recording import runs_dir
from tests.runs import write_run

PATIENCE_MS = 20_000


@pytest.fixture(autouse=True)
def own_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OFFRAMP_DATA_DIR", str(tmp_path / "data"))


def printing(*lines: object, code: int = 0, forever: bool = False):
    """A child that prints these and ends, or does not."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    wait = "import time; time.sleep(60)" if forever else f"import sys; sys.exit({code})"
    return lambda _spec: [sys.executable, "-c", f"print({text!r}, end='', flush=True); {wait}"]


def case(kind: str = "policy", name: str = "round-robin", number: int = 8, e2e_s: float = 4.5):
    key = {"policy": "policy", "elsewhere": "backend"}.get(kind, "case")
    rows = [{"id": i + 1, "backend": GPU, "ttft_s": 0.5, "e2e_s": e2e_s} for i in range(8)]
    return {
        "case": kind,
        key: name,
        "request": number,
        "makespan_s": 11.0,
        "mean_e2e_s": 5.0,
        "requests": rows,
    }


REGRET = {
    "proven": True, "tried": 256, "measured": {"makespan_s": 11.4, "mean_e2e_s": 7.0},
    "policy_simulated": {"makespan_s": 10.4, "mean_e2e_s": 6.7},
    "best": {"makespan_s": 10.0, "mean_e2e_s": 6.5}, "lower_bound": {"makespan_s": 9.0},
    "regret": {
        goal: {
            "total": 0.14, "model_error": 0.07, "placed_otherwise": 0.03, "length_error": 0.0,
            "greedy_choice": 0.04, "unproven_gap": 0.0,
        }
        for goal in ("makespan", "mean_e2e")
    },
}  # fmt: skip


def test_the_receipt_says_what_would_have_been_under_every_policy(rig, texts) -> None:  # noqa: F811
    write_run(runs_dir(), "run-1", ended=0)  # the burst of the scene still runs
    rig.engine.publish(*golden_scene())
    rig.settle()
    rig.window.show_last_receipt()
    sheet, hindsight = rig.window.sheet, rig.window.looking_back.hindsight
    assert sheet.what_if_button.isVisible() and sheet.what_if_button.isEnabled()
    QTest.keyClick(sheet, Qt.Key.Key_J, Qt.KeyboardModifier.ControlModifier)
    assert not sheet.what_if_button.isEnabled() and hindsight.what_if("run-1").running
    rig.qtbot.waitUntil(lambda: not hindsight.what_if("run-1").running, timeout=PATIENCE_MS)
    found = hindsight.what_if("run-1")
    assert found.problem == "" and found.policies() and [c.name for c in found.elsewhere(8)] == [GPU]
    texts.clear()
    sheet.body.grab()
    shown = [text for text, *_ in texts]
    assert SIMULATED in shown and "This one on the GPU" in shown and "forced-cpu" in shown
    assert "ran here" in shown, "the policy that ran is marked"
    assert too_wide(texts) == []
    sheet.copy_markdown()
    copied = QGuiApplication.clipboard().text()
    assert "| This one on the GPU | GPU |" in copied and SIMULATED in copied
    assert not sheet.what_if_button.isEnabled(), "nothing is left to ask for this request"
    QTest.keyClick(sheet, Qt.Key.Key_Left)
    assert sheet.what_if_button.isEnabled(), "but for another one there is"


def test_only_what_is_not_known_is_asked_for(rig) -> None:
    write_run(runs_dir(), "run-1", ended=0)
    rig.engine.publish(*golden_scene())
    rig.settle()
    asked, hindsight = [], rig.window.looking_back.hindsight
    child = printing({"total": 2}, case(), case("elsewhere", GPU))
    hindsight._command = lambda spec: asked.append(spec) or child(spec)
    rig.window.show_last_receipt()
    for _ in range(2):
        rig.window.sheet.ask_what_if()
        rig.qtbot.waitUntil(lambda: not hindsight.what_if("run-1").running, timeout=PATIENCE_MS)
        rig.window.sheet.previous()
    assert [(s["request"], s["policies"]) for s in asked] == [(8, True), (7, False)]
    assert asked[0]["placement"] == [GPU] * 7 + ["cpu"] and len(asked[0]["offsets_s"]) == 8


@pytest.mark.parametrize(
    ("child", "words"),
    [
        (printing({"error": "The preset has changed."}, code=1), "The preset has changed."),
        (printing("no object", code=3), "ended with code 3"),
        (lambda _spec: ["/nowhere/python"], "could not be started"),
    ],
)
def test_a_child_that_fails_is_told_in_the_receipt(rig, texts, child, words) -> None:  # noqa: F811
    write_run(runs_dir(), "run-1", ended=0)
    rig.engine.publish(*golden_scene())
    rig.settle()
    hindsight = rig.window.looking_back.hindsight
    hindsight._command = child
    rig.window.show_last_receipt()
    rig.window.sheet.ask_what_if()
    rig.qtbot.waitUntil(lambda: not hindsight.what_if("run-1").running, timeout=PATIENCE_MS)
    texts.clear()
    rig.window.sheet.body.grab()
    assert words in " ".join(text for text, *_ in texts)
    assert rig.window.sheet.what_if_button.isEnabled(), "one can try again"


def test_a_typed_prompt_and_a_burst_without_a_file_are_refused_in_words(rig) -> None:
    rig.write("Why?")
    rig.engine.answer(next(iter(rig.board.requests)), "Because.")
    rig.settle()
    rig.window.show_last_receipt()
    button = rig.window.sheet.what_if_button
    assert not button.isEnabled() and button.toolTip() == TYPED
    rig.engine.publish(*golden_scene())
    rig.settle()
    rig.window.show_last_receipt()
    rig.window.sheet.ask_what_if()
    assert "There is no run" in rig.window.looking_back.hindsight.what_if("run-1").problem


def test_the_result_card_shows_the_regret_when_it_is_computed(rig, tmp_path) -> None:
    rig.engine.publish(*golden_scene())
    rig.settle()
    path = write_run(runs_dir(), "run-1")
    data = result() | {"run_file": str(path)}
    rig.engine.publish(BurstDone("run-1", False, data))
    rig.settle()
    card, hindsight = rig.window.card, rig.window.looking_back.hindsight
    assert card.shown.regret.words == COMPUTING
    rig.qtbot.waitUntil(lambda: card.shown.regret.regret is not None, timeout=PATIENCE_MS)
    assert card.shown.regret.regret.tried == 256 and card.shown.regret is hindsight.regret("run-1")
    text = card.shown.markdown()
    assert SIMULATED in text and "all 256 placements tried" in text and "| Lower bound |" in text
    assert json.loads(card.shown.json())["regret"]["simulated"] is True
    assert SIMULATED in card.page.accessibleDescription()


@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)])
def test_the_regret_fits_on_the_card(rig, texts, size) -> None:  # noqa: F811
    rig.window.looking_back.hindsight._command = printing({"total": 1}, REGRET)
    rig.engine.publish(*golden_scene())
    rig.window.resize(*size)
    burst(rig, run_id="a", policy="forced-gpu")
    rig.engine.publish(
        BurstStarted("b", "seed-warm-8", "least-requests", 8, 1_000.0, ()),
        BurstDone(
            "b", False, result(policy="least-requests", run_id="b") | {"run_file": "x", "mixed": False}
        ),
    )
    rig.settle()
    card = rig.window.card
    rig.qtbot.waitUntil(lambda: card.shown.regret.regret is not None, timeout=PATIENCE_MS)
    texts.clear()
    card.grab()
    assert too_wide(texts) == []
    below = [text for text, filled, _ in texts if filled.bottom() > card.page.height()]
    assert below == [], "everything lies inside the page"
    assert "+14.0 %" in [text for text, *_ in texts]


@pytest.mark.parametrize(
    ("changes", "words"), [({"mixed": True}, "Typed prompts"), ({"run_file": None}, "not recorded")]
)
def test_no_regret_is_said_with_its_reason(rig, texts, changes, words) -> None:  # noqa: F811
    rig.engine.publish(
        BurstStarted("b", "seed-warm-8", "least-requests", 8, 1_000.0, ()),
        BurstDone("b", False, result(run_id="b") | changes),
    )
    rig.settle()
    texts.clear()
    rig.window.card.grab()
    assert any(text.startswith("n/a. ") and words in text for text, *_ in texts)


def test_a_new_burst_interrupts_the_search_which_then_begins_again(rig) -> None:
    hindsight = rig.window.looking_back.hindsight
    hindsight._command = printing({"total": 1}, forever=True)
    rig.engine.publish(
        BurstStarted("a", "seed-warm-8", "least-requests", 8, 1_000.0, ()),
        BurstDone("a", False, result(run_id="a") | {"run_file": "x"}),
    )
    rig.settle()
    assert hindsight.regret("a").words == COMPUTING
    rig.engine.publish(BurstStarted("b", "seed-warm-8", "least-requests", 8, 1_000.0, ()))
    rig.settle()
    assert hindsight.regret("a").words == WAITS
    hindsight._command = printing({"total": 1}, REGRET)
    rig.engine.publish(BurstDone("b", True, {}))
    rig.settle()
    rig.qtbot.waitUntil(lambda: hindsight.regret("a").regret is not None, timeout=PATIENCE_MS)


def test_closing_ends_the_children(rig) -> None:
    write_run(runs_dir(), "run-1", ended=0)
    rig.engine.publish(*golden_scene())
    rig.settle()
    hindsight = rig.window.looking_back.hindsight
    hindsight._command = printing({"total": 1}, forever=True)
    rig.window.show_last_receipt()
    rig.window.sheet.ask_what_if()
    process = hindsight._asking[0]._process
    rig.window.close()
    assert process.state() is process.ProcessState.NotRunning


def test_another_question_ends_the_one_before(rig) -> None:
    write_run(runs_dir(), "run-1", ended=0)
    rig.engine.publish(*golden_scene())
    rig.settle()
    hindsight = rig.window.looking_back.hindsight
    hindsight._command = printing({"total": 2}, case(), forever=True)
    rows = rig.board.run_rows()
    hindsight.ask(rows[7])
    rig.qtbot.waitUntil(lambda: bool(hindsight.what_if("run-1").cases), timeout=PATIENCE_MS)
    assert hindsight.what_if("run-1").progress() == "Simulating 2 of 2…"
    first = hindsight._asking[0]._process
    told = []
    hindsight.what_if_changed.connect(lambda run: told.append(hindsight.what_if(run).problem))
    hindsight.ask(rows[6])
    assert first.state() is first.ProcessState.NotRunning and STOPPED in told
    assert hindsight.what_if("run-1").running and hindsight.what_if("run-1").policies()
