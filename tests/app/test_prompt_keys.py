"""The prompt panel by keyboard alone: every control has a name, is reached, and is left again."""

import pytest
from prompt_helpers import answered, begun, controls, walked
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QWidget

from app.chats import ChatStore
from app.theme import stylesheet
from app.widgets.popover import Popover
from app.widgets.sampling_line import SamplingLine, stops_of, stops_text
from engine.request import SamplingParams


def prompt_in(rig, qtbot, state: str) -> QWidget:
    prompt = rig.window.prompt
    if state != "empty":
        answered(rig, qtbot, "First", "One.\n\n" * 60)
    if state == "reading":
        prompt.transcript.verticalScrollBar().setValue(0)
    if state == "streaming":
        begun(rig, "Second", "Two")
    if state == "editing":
        prompt.act("edit")
    rig.window.activateWindow()
    return prompt


@pytest.mark.parametrize("state", ["empty", "answered", "reading", "streaming", "editing"])
def test_every_control_of_the_panel_is_named_reached_and_left(rig, qtbot, state) -> None:
    prompt = prompt_in(rig, qtbot, state)
    wanted = controls(prompt)
    assert len(wanted) >= 9 + (state == "reading")
    assert [w for w in wanted if not w.accessibleName().strip()] == []
    editor = prompt.composer.editor
    for key in (Qt.Key.Key_Tab, Qt.Key.Key_Backtab):
        seen = walked(editor, [*wanted, rig.window.toolbar.policy], key)
        # The way to the latest goes once the keys themselves have led there.
        assert [w.accessibleName() for w in wanted if w not in seen and w.isVisible()] == []
        assert rig.window.toolbar.policy in seen  # the panel is no trap


def open_list(rig) -> Popover:
    return rig.window.prompt.show_conversations()


def open_sampling(rig) -> Popover:
    return rig.window.prompt.composer.sampling_line.open()


def open_system(rig) -> Popover:
    rig.window.prompt.edit_system()
    return next(p for p in rig.window.findChildren(Popover) if p.isVisible())


@pytest.mark.parametrize("opened", [open_list, open_sampling, open_system])
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_every_popover_is_walked_by_tab_fits_and_leaves_with_escape(
    rig, qtbot, tmp_path, opened, theme
) -> None:
    rig.window.prompt.use_store(ChatStore(tmp_path / "chats.sqlite"))
    answered(rig, qtbot, "First", "One.")
    rig.themes.set_mode(theme)
    popover = opened(rig)
    popover.activateWindow()
    wanted = controls(popover)
    assert [w for w in wanted if not w.accessibleName().strip()] == []
    for key in (Qt.Key.Key_Tab, Qt.Key.Key_Backtab):
        seen = walked(wanted[0], wanted, key)
        assert [w.accessibleName() for w in wanted if w not in seen] == []
    if len(wanted) > 1:
        QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
        now = QApplication.focusWidget()
        place = QRect(now.mapTo(popover, QPoint(0, 0)), now.size())
        assert popover.ring.isVisible() and popover.ring.geometry().contains(place)
    assert cut(popover) == []
    picture = popover.grab().toImage()
    assert picture.pixelColor(4, 40) == rig.themes.current.raised  # nothing shines through the text
    assert picture.pixelColor(0, 0).alpha() == 0  # but beside the round corner
    QTest.keyClick(QApplication.focusWidget() or popover, Qt.Key.Key_Escape)
    assert not popover.isVisible()


def cut(root: QWidget) -> list[str]:
    """Buttons and labels with less room than they ask for, or beyond the edge of `root`."""
    out = []
    for widget in [*root.findChildren(QPushButton), *root.findChildren(QLabel)]:
        if widget.isVisible() and widget.text():
            corner = widget.mapTo(root, widget.rect().bottomRight())
            if widget.width() < widget.minimumSizeHint().width() or not root.rect().contains(corner):
                out.append(widget.text())
    return out


def test_a_deletion_that_asks_again_fits(rig, qtbot, tmp_path) -> None:
    rig.window.prompt.use_store(ChatStore(tmp_path / "chats.sqlite"))
    answered(rig, qtbot, "First", "One.")
    popover = rig.window.prompt.show_conversations()
    QTest.keyClick(popover.list, Qt.Key.Key_Delete)
    qtbot.wait(1)  # the row makes room for the longer word
    assert popover.delete_button.text() == "Really delete?" and cut(popover) == []
    QTest.keyClick(popover.list, Qt.Key.Key_Delete)
    assert popover.list.count() == 0
    popover.close()


@pytest.mark.parametrize("width", [1280, 1920])
@pytest.mark.parametrize("state", ["answered", "streaming", "editing"])
def test_the_panel_cuts_no_text(rig, qtbot, width, state) -> None:
    rig.window.resize(width, 720)
    prompt = prompt_in(rig, qtbot, state)
    prompt.title.show_others(12)
    rig.settle()
    phrase = prompt.title._panel.phrase_label
    assert phrase.text() in ("12 more run", "12 more", "+12")
    assert [t for t in cut(prompt) if t != phrase.text()] == []


def test_links_of_the_transcript_work_from_the_keyboard(rig, qtbot) -> None:
    prompt = rig.window.prompt
    answered(rig, qtbot, "First", "One.")
    rig.window.activateWindow()
    prompt.transcript.setFocus()
    with qtbot.waitSignal(prompt.receipt_requested) as asked:
        QTest.keyClick(prompt.transcript, Qt.Key.Key_Tab)
        QTest.keyClick(prompt.transcript, Qt.Key.Key_Return)
    assert asked.args == [1]


def test_going_to_the_latest_by_key_keeps_the_focus_in_the_text(rig, qtbot) -> None:
    prompt = prompt_in(rig, qtbot, "reading")
    prompt.transcript.latest_button.setFocus()
    QTest.keyClick(prompt.transcript.latest_button, Qt.Key.Key_Space)
    assert not prompt.transcript.latest_button.isVisible() and prompt.transcript.hasFocus()


def test_the_preset_in_use_stands_out(rig) -> None:
    line = rig.window.prompt.composer.sampling_line
    popover = line.open()
    buttons = {b.text(): b for b in popover.findChildren(QPushButton)}
    used = lambda: [text for text, b in buttons.items() if b.property("kind") == "primary"]  # noqa: E731
    assert used() == ["Balanced"]
    buttons["Thinking"].click()
    assert used() == ["Thinking"] and (line.sampling.temperature, line.sampling.top_k) == (0.6, 20)
    line_temperature = next(w for w in popover.findChildren(QWidget) if w.accessibleName() == "Temperature")
    line_temperature.setValue(0.61)
    assert used() == []
    popover.close()


def test_stop_strings_are_typed_and_sent(rig) -> None:
    popover = rig.window.prompt.composer.sampling_line.open()
    popover.stops.setText("END, \\n\\n,, END")
    popover.close()
    rig.write("Hello")
    sampling = rig.engine.calls[-1][2]
    assert sampling.stop == ("END", "\n\n")
    assert stops_of(stops_text(sampling.stop)) == sampling.stop and stops_text(()) == ""
    line = SamplingLine(rig.themes)
    line.set_sampling(SamplingParams(stop=("a",)))
    assert line.open().stops.text() == "a"
    line.deleteLater()


@pytest.mark.parametrize("width", [280, 352, 608])
def test_stop_strings_that_are_set_are_seen_and_fit(rig, qtbot, width) -> None:
    line = SamplingLine(rig.themes)
    qtbot.addWidget(line)
    line.setStyleSheet(stylesheet(rig.themes.current))
    line.setFixedWidth(width)
    line.show()
    texts = lambda: [b.text() for b in line.findChildren(QPushButton) if b.isVisible()]  # noqa: E731
    assert not any("stop" in text for text in texts())
    line.set_sampling(SamplingParams(seed=1_234, stop=("END", "\n")))
    assert texts()[-1] == "2 stops" and line.sizeHint().width() <= width
    assert all(b.accessibleName() for b in line.findChildren(QPushButton))


def test_stop_strings_come_back_with_the_next_window(make_rig) -> None:
    first = make_rig().ready()
    first.window.prompt.composer.sampling_line.open().stops.setText("END, \\n")
    first.window.close()
    assert make_rig().window.prompt.composer.sampling_line.sampling.stop == ("END", "\n")


def test_a_conversation_is_renamed_and_opened_by_keys_alone(rig, qtbot, tmp_path) -> None:
    prompt = rig.window.prompt
    prompt.use_store(ChatStore(tmp_path / "chats.sqlite"))
    answered(rig, qtbot, "First", "One.")
    prompt.new_conversation()
    answered(rig, qtbot, "Second", "Two.")
    popover = prompt.show_conversations()
    popover.activateWindow()
    popover.list.setFocus()
    QTest.keyClick(popover.list, Qt.Key.Key_Down)
    QTest.keyClick(popover.list, Qt.Key.Key_F2)
    editor = QApplication.focusWidget()
    assert editor.accessibleName() == "Title" and editor.text() == "First"
    QTest.keyClicks(editor, "Renamed")
    QTest.keyClick(editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: [c.title for c in prompt.talks.listed()] == ["Second", "Renamed"])
    assert popover.isVisible()
    QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Return)
    assert not popover.isVisible() and prompt.talk.title == "Renamed"
