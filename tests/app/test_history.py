"""Runs of earlier sessions: listed in whatever state their files are, opened to read, deleted when sure."""

import json
import math
import os
from itertools import pairwise

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from test_charts import keep_panels, texts, too_wide  # noqa: F401

from app.history_dialog import History
from app.series.history import CUT_SHORT, board_of, open_run, past_runs
from app.series.outcome import metrics
from app.series.rows import delimited
from app.theme import ThemeHolder, stylesheet
from engine.errors import EngineError
from engine.recording import runs_dir
from tests.runs import write_run


@pytest.fixture(autouse=True)
def own_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OFFRAMP_DATA_DIR", str(tmp_path / "data"))


def write_some() -> None:
    write_run(runs_dir(), "old", "seed-warm-8", "forced-gpu", stamp="20261201-100000")
    write_run(runs_dir(), "real", "cold-12", "total-delay", stamp="20261202-110000", emulated=False)
    write_run(runs_dir(), "new", "seed-warm-8", "isolated-rates", stamp="20261203-120000")


def test_files_in_every_state_are_listed_newest_first() -> None:
    assert past_runs() == []
    write_some()
    write_run(runs_dir(), "cut", ended=3, stamp="20261204-120000")
    write_run(runs_dir(), "other", version=99, stamp="20261205-120000")
    (runs_dir() / "20261206-empty.jsonl").write_bytes(b"")
    (runs_dir() / "20261207-noise.jsonl").write_bytes(b"\xff\xfe\x00 not text\n")
    (runs_dir() / "20261208-half.jsonl").write_text('{"format": "offramp-run", "version": 1}\n', "utf-8")
    (runs_dir() / "20261209-folder.jsonl").mkdir()
    runs = past_runs()
    assert [bool(r.problem) for r in runs] == [True] * 6 + [False] * 3
    problems = [r.problem for r in runs if r.problem]
    assert "version 99" in problems[4] and problems[5] == CUT_SHORT
    assert all(p.endswith(".") and "\n" not in p and "Error" not in p.split("(")[0] for p in problems)
    assert [(r.preset, r.policy, r.emulated) for r in runs[6:]] == [
        ("seed-warm-8", "isolated-rates", True),
        ("cold-12", "total-delay", False),
        ("seed-warm-8", "forced-gpu", True),
    ]
    assert runs[6].date == "2026-12-03 12:00" and runs[6].makespan_s == pytest.approx(10.152, abs=0.01)
    for run in runs[:6]:
        with pytest.raises(EngineError):
            open_run(run.path)


def test_a_run_of_which_some_ended_early_says_so(qtbot) -> None:
    write_some()
    path = write_run(runs_dir(), "dead", stamp="20261204-120000")
    lines = path.read_text("utf-8").splitlines()
    data = json.loads(lines[-1])
    for row, reason in zip(data["result"]["requests"][:3], ("error", "error", "abort"), strict=True):
        row["finish_reason"] = reason
    path.write_text("\n".join([*lines[:-1], json.dumps(data)]) + "\n", "utf-8")
    runs = past_runs()
    assert [r.unfinished for r in runs] == [3, 0, 0, 0]
    assert ", 3 ended early" in runs[0].sentence() and "early" not in runs[1].sentence()
    history = History(ThemeHolder("dark"))
    qtbot.addWidget(history)
    assert history.model.index(0, 4).data() == "EMULATED, 3 ended early"


def test_a_file_that_has_changed_is_read_again() -> None:
    path = write_run(runs_dir(), "cut", ended=3)
    assert past_runs()[0].problem == CUT_SHORT
    write_run(runs_dir(), "cut")
    os.utime(path, (1, 1))
    assert past_runs()[0].problem == ""


def test_a_run_comes_back_with_its_requests_and_receipts() -> None:
    path = write_run(runs_dir(), "r", profile="apple-m2-published")
    run = open_run(path)
    assert run.emulation == "Apple M2, published timings" and run.run_id == "r"
    board = board_of(run)
    result = json.loads(path.read_text("utf-8").splitlines()[-1])["result"]
    rows = list(board.requests.values())
    assert [r.receipt.chosen for r in rows] == [r["backend"] for r in result["requests"]]
    assert rows[7].receipt.predicted_s == pytest.approx(result["requests"][7]["predicted_s"])
    table = delimited(rows, 0.0, board.labels()).splitlines()
    assert len(table) == 9 and table[8].split(",")[:6] == ["8", "finished", "CPU", "516", "496", "128"]
    assert float(table[8].split(",")[9]) == pytest.approx(result["requests"][7]["e2e_s"], abs=0.01)
    assert board.ranks() == {"cpu": 1, "gpu": 0}


def test_token_times_give_the_gaps_between_tokens() -> None:
    run = open_run(write_run(runs_dir(), "r"))
    rows = board_of(run).requests.values()
    assert all(len(row.token_times_s) == row.output_tokens == 128 for row in rows)
    for row in rows:
        assert row.token_times_s[0] == pytest.approx(row.first_token_s, abs=1e-4)
        assert row.token_times_s[-1] == pytest.approx(row.finished_s, abs=1e-4)
    shown = {m.name: m.now for m in metrics(run)}
    gaps = sorted(b - a for r in rows for a, b in pairwise(r.token_times_s))
    assert shown["ITL p95"] == pytest.approx(gaps[math.ceil(0.95 * len(gaps)) - 1] * 1000, abs=0.01)
    itl = [line.split("\t")[8] for line in delimited(list(rows), 0.0, {}, "\t").splitlines()]
    assert itl[0] == "ITL p95, ms" and all(float(value) > 0 for value in itl[1:])


def test_a_run_of_an_earlier_version_has_no_token_times() -> None:
    run = open_run(write_run(runs_dir(), "r", token_times=False))
    assert {m.name: m.now for m in metrics(run)}["ITL p95"] is None
    assert not any(row.token_times_s for row in board_of(run).requests.values())


@pytest.mark.parametrize("name", ["dark", "light"])
def test_a_chosen_run_still_shows_in_colour_that_it_was_emulated(qtbot, name) -> None:
    write_run(runs_dir(), "new", "seed-warm-8", "isolated-rates", stamp="20261203-120000")
    themes = ThemeHolder(name)
    history = History(themes)
    qtbot.addWidget(history)
    history.setStyleSheet(stylesheet(themes.current))
    history.resize(900, 400)
    history.show()
    table = history.table
    assert table.selectionModel().isRowSelected(0)
    cell = table.visualRect(history.model.index(0, 4))
    picture = table.viewport().grab(cell).toImage()
    inks = {picture.pixelColor(x, y).name() for x in range(cell.width()) for y in range(cell.height())}
    assert themes.current.emulated.name() in inks and themes.current.text.name() not in inks
    assert themes.current.hover.name() in inks, "the row is not drawn as chosen"


def test_a_past_run_tells_why_its_requests_went_where_they_did(rig, qtbot, texts) -> None:  # noqa: F811
    write_run(runs_dir(), "past", profile="apple-m2-published")
    asked = []
    rig.window.looking_back.hindsight._command = lambda spec: asked.append(spec) or ["/nowhere"]
    rig.window.looking_back.show_past(past_runs()[0].path)
    card = rig.window.card
    card.requests_button.click()
    table = card.requests.table
    table.setFocus()
    table.selectRow(6)
    QTest.keyClick(table, Qt.Key.Key_Return)
    sheet = card.sheet
    assert sheet.isVisible() and sheet.current().number == 7 and sheet.emulated.isVisible()
    assert sheet.place_label.text() == "7 of 8" and "routed at 0.3" in sheet.phrase.full_text()
    assert sheet.geometry().right() == rig.window.pages.rect().right() and sheet.width() == 760
    QTest.keyClick(sheet, Qt.Key.Key_Right)
    assert "Request 8" in sheet.body.accessibleName() and "CPU" in sheet.body.accessibleName()
    texts.clear()
    sheet.grab()
    assert too_wide(texts) == []
    sheet.ask_what_if()
    assert asked[-1]["kind"] == "what-if" and asked[-1]["request"] == 8
    assert asked[-1]["placement"] == ["gpu"] * 7 + ["cpu"]
    rig.window.activateWindow()
    QTest.keyClick(sheet, Qt.Key.Key_Escape)
    assert not sheet.isVisible() and card.isVisible(), "one thing at a time"
    card.requests.why_button.click()
    assert card.sheet.isVisible() and card.sheet.current().number == 7 and card.sheet is not sheet
    card.close_card()
    assert card.sheet is None and rig.window.sheet.isHidden() and rig.board.run is None


def test_the_receipt_of_a_past_run_goes_with_its_card(rig) -> None:
    write_some()
    rig.window.looking_back.hindsight._command = lambda _spec: ["/nowhere"]
    runs = past_runs()
    for run in runs[:2]:
        rig.window.looking_back.show_past(run.path)
        card = rig.window.card
        assert card.sheet is None
        card.requests_button.click()
        card.requests.ask_why()
        assert card.sheet.isVisible()
    card.requests_button.click()
    assert card.sheet is None, "the figures have no request to explain"
    card.requests_button.click()
    card.requests.ask_why()
    rig.window.resize(1280, 720)
    assert card.sheet.geometry().bottom() == rig.window.pages.rect().bottom()


def test_opening_one_shows_its_card_and_its_table(rig, texts) -> None:  # noqa: F811
    write_some()
    rig.window.looking_back.hindsight._command = lambda _spec: ["/nowhere"]
    history = rig.window.looking_back.show_history()
    assert history.window().isVisible() and history.model.rowCount() == 3
    QTest.keyClick(history.table, Qt.Key.Key_Down)
    assert history.current().preset == "cold-12"
    QTest.keyClick(history.table, Qt.Key.Key_Return)
    card = rig.window.card
    assert card.isVisible() and not card.emulated.isVisible(), "that one was measured"
    assert card.phrase.full_text().startswith("cold-12, total-delay")
    assert not card.repeat_button.isVisible()
    card.requests_button.click()
    assert card.pages.currentIndex() == 1 and card.requests.model.rowCount() == 12
    card.requests.table.sortByColumn(9, Qt.SortOrder.DescendingOrder)
    ends = [row.finished_s - row.arrival_s for row in card.requests.chosen_rows()]
    assert ends == sorted(ends, reverse=True)
    card.requests.filter_button.click()
    card.requests.filter_edit.setText("11")
    assert [row.number for row in card.requests.chosen_rows()] == [11]
    texts.clear()
    card.grab()
    assert too_wide(texts) == []
    card.requests_button.click()
    assert card.pages.currentIndex() == 0
    assert rig.board.run is None, "the window's own state is untouched"


def test_an_emulated_run_is_marked_in_list_and_card(rig) -> None:
    write_run(runs_dir(), "e", profile="apple-m2-published")
    rig.window.looking_back.hindsight._command = lambda _spec: ["/nowhere"]
    history = rig.window.looking_back.show_history()
    assert history.model.data(history.model.index(0, 4)) == "EMULATED"
    history.open_button.click()
    assert rig.window.card.emulated.isVisible()
    assert "published timings" in rig.window.card.emulated.text()


def test_what_cannot_be_opened_says_why_and_can_be_deleted(rig) -> None:
    path = write_run(runs_dir(), "other", version=99)
    history = rig.window.looking_back.show_history()
    assert not history.open_button.isEnabled() and "version 99" in history.words.text()
    QTest.keyClick(history.table, Qt.Key.Key_Return)
    assert not rig.window.card.isVisible()
    history.delete_button.click()
    assert path.exists() and "cannot be brought back" in history.words.text()
    assert history.delete_button.accessibleName() == "Delete the run for good"
    history.delete_button.click()
    assert not path.exists() and history.model.rowCount() == 0
    assert "No burst has been recorded yet" in history.words.text()


def test_another_row_takes_the_question_back(rig) -> None:
    write_some()
    history = rig.window.looking_back.show_history()
    QTest.keyClick(history.table, Qt.Key.Key_Delete)
    QTest.keyClick(history.table, Qt.Key.Key_Down)
    QTest.keyClick(history.table, Qt.Key.Key_Delete)
    assert len(past_runs()) == 3, "each row is asked about for itself"
    QTest.keyClick(history.table, Qt.Key.Key_Delete)
    assert [r.preset for r in past_runs()] == ["seed-warm-8", "seed-warm-8"]


def test_a_file_that_went_meanwhile_is_told(rig) -> None:
    path = write_run(runs_dir(), "gone")
    history = rig.window.looking_back.show_history()
    path.unlink()
    history.open_button.click()
    assert not rig.window.card.isVisible() and rig.window.toast.isVisible()


def test_filter_and_escape(rig) -> None:
    write_some()
    history = rig.window.looking_back.show_history()
    history.filter_edit.setText("cold total")
    assert [r.preset for r in history.model.runs] == ["cold-12"]
    history.filter_edit.setText("nothing like it")
    assert history.words.text() == "No run holds these words." and not history.open_button.isEnabled()
    dialog = history.window()
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()


def test_the_card_leads_to_the_history(rig) -> None:
    write_some()
    rig.window.looking_back.hindsight._command = lambda _spec: ["/nowhere"]
    rig.window.looking_back.show_past(past_runs()[0].path)
    rig.window.card.history_button.click()
    assert [h.isVisible() for h in rig.window.findChildren(History)] == [True]
    rig.window.actions_by_name["history"].trigger()
    assert len(rig.window.findChildren(History)) == 2


def test_every_control_has_a_name(rig) -> None:
    write_some()
    history = rig.window.looking_back.show_history()
    parts = (
        history.table,
        history.filter_edit,
        history.open_button,
        history.delete_button,
        history.close_button,
    )
    assert all(part.accessibleName() for part in parts)
    index = history.model.index(0, 0)
    spoken = history.model.data(index, Qt.ItemDataRole.AccessibleTextRole)
    assert spoken.startswith("2026-12-03 12:00, seed-warm-8, isolated-rates, ") and spoken.endswith(
        "emulated."
    )
