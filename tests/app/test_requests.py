"""The requests table and the receipt sheet: sorting, filtering, copying, saving, stepping."""

import json

import bursts
import pytest
from fake_engine import CPU
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from test_charts import ALL, _kept, keep_panels, shown, texts, too_wide  # noqa: F401  (two are fixtures)

from app.panels.receipt import ReceiptSheet
from app.panels.request_model import TIMELINE
from app.panels.requests import RequestsPanel
from app.series.rows import COLUMNS
from app.theme import ThemeHolder
from engine.events import RequestArrived, RequestDone
from engine.request import FinishReason, RequestId, RequestTimings

KEYS = [c.key for c in COLUMNS]


@pytest.fixture
def panel(qtbot):
    return shown(qtbot, RequestsPanel(bursts.golden(), ThemeHolder("dark")), (1904, 264))


def column(panel, key: str) -> list[str]:
    at = KEYS.index(key)
    return [panel.proxy.index(r, at).data() for r in range(panel.proxy.rowCount())]


def finish(panel, request_id=107, reason=FinishReason.LENGTH):
    start = bursts.START_S
    timings = RequestTimings(start + 0.35, start + 0.35, start + 0.69, start + 3.57)
    panel.board.apply([RequestDone(RequestId(request_id), CPU, reason, 516, 496, 128, timings)])
    panel.refresh(ALL, start + 4.2)


def test_figures_as_in_the_scene(panel):
    assert panel.phrase_label.full_text().startswith("5 decoding, 3 queued, 0 finished. Predicted is")
    assert column(panel, "number") == [str(i) for i in range(1, 9)]
    assert column(panel, "queue")[4:7] == ["2.60…", "2.55…", "2.50…"]
    assert column(panel, "ttft") == ["0.03", "0.04", "0.07", "0.08", "n/a", "n/a", "n/a", "0.34"]
    assert column(panel, "itl")[0] == "46.4"
    assert column(panel, "predicted")[7] == "3.12"
    finish(panel)
    assert column(panel, "error")[7] == "+3.3"
    assert panel.phrase_label.full_text().startswith("4 decoding, 3 queued, 1 finished.")


def test_sorting_is_by_value_with_the_unknown_last(panel):
    at = KEYS.index("ttft")
    panel.table.sortByColumn(at, Qt.SortOrder.AscendingOrder)
    assert column(panel, "ttft") == ["0.03", "0.04", "0.07", "0.08", "0.34", "n/a", "n/a", "n/a"]
    panel.table.sortByColumn(at, Qt.SortOrder.DescendingOrder)
    assert column(panel, "ttft") == ["0.34", "0.08", "0.07", "0.04", "0.03", "n/a", "n/a", "n/a"]
    panel.table.sortByColumn(KEYS.index("backend"), Qt.SortOrder.AscendingOrder)
    assert column(panel, "backend")[0] == "CPU"


def test_the_selection_follows_its_row(panel):
    panel.table.selectRow(7)
    panel.table.sortByColumn(0, Qt.SortOrder.DescendingOrder)
    assert [i.row() for i in panel.table.selectionModel().selectedRows()] == [0]
    assert [r.number for r in panel.chosen_rows()] == [8]


def test_numbers_sort_as_numbers(qtbot):
    panel = shown(qtbot, RequestsPanel(bursts.long_burst(), ThemeHolder("dark")), (1904, 264), 20.0)
    panel.table.sortByColumn(0, Qt.SortOrder.DescendingOrder)
    assert column(panel, "number")[:3] == ["48", "47", "46"]


def test_filter(panel):
    panel.filter_button.setChecked(True)
    panel.filter_edit.setText("gpu queued")
    assert column(panel, "number") == ["5", "6", "7"]
    panel.filter_button.setChecked(False)
    assert panel.proxy.rowCount() == 8


def test_copy_takes_the_selection_or_all(panel):
    panel.table.selectRow(7)
    panel.copy_button.click()
    lines = QGuiApplication.clipboard().text().splitlines()
    assert lines[0].split("\t")[:3] == ["#", "State", "Backend"]
    assert [line.split("\t")[:3] for line in lines[1:]] == [["8", "decoding", "CPU"]]
    panel.table.clearSelection()
    panel.copy()
    assert len(QGuiApplication.clipboard().text().splitlines()) == 9


def test_csv(panel, tmp_path, qtbot):
    path = tmp_path / "out.csv"
    panel.save_csv(str(path))
    assert path.read_text(encoding="utf-8").splitlines()[8].startswith("8,decoding,CPU,516,496,94")
    with qtbot.waitSignal(panel.failed) as failed:
        panel.save_csv(str(tmp_path / "missing" / "out.csv"))
    assert failed.args[0].endswith("Choose another folder.")


def test_only_changed_rows_are_announced(panel):
    finish(panel)
    for i in range(1, 8):  # nothing runs any more
        finish(panel, 99 + i)
    changes = []
    panel.model.dataChanged.connect(lambda first, last: changes.append((first.row(), last.row())))
    panel.refresh(ALL, bursts.START_S + 9)
    changes.clear()  # the line of now has just gone
    panel.refresh(ALL, bursts.START_S + 9)
    assert changes == [] and panel.model.changed_rows == 0
    panel.model.rows[3].output_tokens += 1
    panel.refresh(ALL, bursts.START_S + 9)
    assert changes == [(3, 3)]


def test_new_rows_are_inserted_not_reset(panel, qtbot):
    panel.table.selectRow(2)
    with qtbot.assertNotEmitted(panel.model.modelReset), qtbot.waitSignal(panel.model.rowsInserted):
        panel.board.apply([RequestArrived(RequestId(900), 9, "run-1", 516, 128, bursts.START_S + 3)])
        panel.refresh(ALL, bursts.START_S + 3)
    assert [i.row() for i in panel.table.selectionModel().selectedRows()] == [2]
    assert column(panel, "backend")[8] == "n/a"  # not routed yet
    panel.grab()


def test_the_timeline_goes_below_1700(panel):
    assert not panel.table.isColumnHidden(TIMELINE)
    panel.resize(1500, 264)
    assert panel.table.isColumnHidden(TIMELINE)


def test_double_click_and_enter_ask_for_the_receipt(panel, qtbot):
    with qtbot.waitSignal(panel.receipt_requested) as asked:
        panel.table.doubleClicked.emit(panel.proxy.index(7, 0))
    assert asked.args == [107]
    panel.table.setCurrentIndex(panel.proxy.index(2, 0))
    with qtbot.waitSignal(panel.receipt_requested) as asked:
        qtbot.keyClick(panel.table, Qt.Key.Key_Return)
    assert asked.args == [102]


def test_an_empty_table_says_what_comes(qtbot):
    panel = shown(qtbot, RequestsPanel(bursts.nothing(), ThemeHolder("light")), (1264, 208))
    assert panel.empty.isVisible() and not panel.emulated_button.isVisible()
    assert "Press Run" in panel.empty_text.text()


def open_sheet(qtbot, board, request_id=107, height=1024):
    sheet = ReceiptSheet(board, ThemeHolder("dark"))
    _kept.append(sheet)
    sheet.resize(760, height)
    sheet.refresh(ALL, bursts.START_S + 4.2)
    sheet.show_request(request_id)
    sheet.grab()
    return sheet


def test_the_receipt_of_request_8(qtbot, texts):  # noqa: F811
    sheet = open_sheet(qtbot, bursts.golden())
    words = [t for t, _, _ in texts]
    assert {"488 active", "384 queued", "128 own", "3.118", "3.444", "1.666", "0.326 s"} <= set(words)
    assert "the term that decides" in words
    assert any(w.startswith("With no active decode the GPU would have won by 1.34 s") for w in words)
    assert sheet.phrase.full_text() == "routed at 0.35 s by isolated-rates"
    assert sheet.place_label.text() == "8 of 8"
    assert sheet.emulated.isVisible()
    assert too_wide(texts) == []


@pytest.mark.parametrize("height", [1024, 500])
def test_every_receipt_fits(qtbot, texts, height):  # noqa: F811
    sheet = open_sheet(qtbot, bursts.long_burst(), 500, height)
    for _ in range(47):
        sheet.next()
        sheet.grab()
    assert sheet.place_label.text() == "48 of 48"
    assert too_wide(texts) == []


def test_keys_step_and_close(qtbot):
    sheet = open_sheet(qtbot, bursts.golden())
    sheet.activateWindow()  # shortcuts need an active window
    qtbot.waitUntil(sheet.isActiveWindow)
    qtbot.keyClick(sheet, Qt.Key.Key_Left)
    assert sheet.request_id == 106
    qtbot.keyClick(sheet, Qt.Key.Key_Right)
    qtbot.keyClick(sheet, Qt.Key.Key_Right)  # the last one: stays
    assert sheet.request_id == 107
    with qtbot.waitSignal(sheet.closed):
        qtbot.keyClick(sheet, Qt.Key.Key_Escape)
    assert not sheet.isVisible()


def test_a_finished_receipt_is_not_painted_again(qtbot):
    board = bursts.golden()
    timings = RequestTimings(1000.35, 1000.35, 1000.69, 1003.57)
    board.apply([RequestDone(RequestId(107), CPU, FinishReason.LENGTH, 516, 496, 128, timings)])
    sheet = open_sheet(qtbot, board)
    assert sheet.phrase.full_text() == "routed at 0.35 s by isolated-rates, finished at 3.57 s"
    facts = sheet.body.facts
    sheet.refresh(ALL, bursts.START_S + 9)
    assert sheet.body.facts is facts


def test_receipts_leave_the_window(qtbot, tmp_path):
    sheet = open_sheet(qtbot, bursts.golden())
    sheet.copy_button.click()
    text = QGuiApplication.clipboard().text()
    assert text.startswith("### Request 8 → CPU\n**EMULATED** Apple M2, published timings")
    path = tmp_path / "receipt.json"
    sheet.save_json(str(path))
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["receipt"]["chosen"] == "cpu" and data["emulation"] == "Apple M2, published timings"
    with qtbot.waitSignal(sheet.failed):
        sheet.save_json(str(tmp_path / "missing" / "x.json"))


def test_what_is_not_routed_has_no_receipt(qtbot):
    board = bursts.golden()
    board.apply([RequestArrived(RequestId(900), 9, "run-1", 516, 128, bursts.START_S + 3)])
    sheet = ReceiptSheet(board, ThemeHolder("dark"))
    _kept.append(sheet)
    sheet.show_request(900)
    sheet.show_request(12345)
    assert not sheet.isVisible()
