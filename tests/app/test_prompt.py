"""Typing, streaming, stopping; what is signed and what is refused."""

from fake_engine import CPU, GPU
from PySide6.QtCore import Qt, QUrl
from PySide6.QtTest import QTest

from engine.errors import PromptError
from engine.events import RequestDone, TextOut
from engine.request import FinishReason, RequestId, RequestTimings


def test_enter_sends_and_shift_enter_makes_a_line(rig) -> None:
    editor = rig.window.prompt.composer.editor
    editor.setFocus()
    QTest.keyClicks(editor, "one")
    QTest.keyClick(editor, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    QTest.keyClicks(editor, "two")
    QTest.keyClick(editor, Qt.Key.Key_Return)
    call = next(c for c in rig.engine.calls if c[0] == "submit_chat")
    assert call[1] == [{"role": "user", "content": "one\ntwo"}]
    assert editor.toPlainText() == ""


def test_a_reply_streams_and_is_signed_with_a_link_to_its_receipt(rig, qtbot) -> None:
    prompt = rig.window.prompt
    rig.write("What is a cache?")
    assert prompt.composer.button.text() == "Stop"
    rig.engine.answer(RequestId(1), "It keeps **what** was read.", GPU, 0.05, 287.0, done=False)
    rig.settle()
    qtbot.waitUntil(lambda: "**what**" in prompt.transcript.toPlainText())
    rig.engine.answer(RequestId(1), " Again.", GPU, 0.05, 287.0)
    rig.settle()
    qtbot.waitUntil(lambda: prompt.composer.button.text() == "Send")
    text = prompt.transcript.toPlainText()
    assert "**" not in text and "It keeps what was read." in text  # Markdown, once, at the end
    assert "GPU, 0.05 s TTFT, 287 tok/s" in text and "why?" in text
    assert "receipt:1" in prompt.transcript.toHtml()
    with qtbot.waitSignal(prompt.receipt_requested) as asked:
        prompt.transcript.anchorClicked.emit(QUrl("receipt:1"))
    assert asked.args == [1]


def test_the_conversation_is_kept_and_a_new_one_forgets_it(rig, qtbot) -> None:
    prompt = rig.window.prompt
    prompt.set_system("Be short.")
    rig.write("First")
    rig.engine.answer(RequestId(1), "One.")
    rig.settle()
    qtbot.waitUntil(lambda: prompt.composer.button.text() == "Send")
    rig.write("Second")
    messages = [c for c in rig.engine.calls if c[0] == "submit_chat"][-1][1]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"] == "One."
    prompt.new_button.click()
    assert ("cancel", 2) not in rig.engine.calls  # it goes on where it began
    assert prompt.transcript.toPlainText() == ""
    rig.settle()
    rig.write("Third")
    assert [m["role"] for m in rig.engine.calls[-1][1]] == ["system", "user"]


def test_stop_cancels_and_the_signature_says_so(rig, qtbot) -> None:
    rig.write("Tell me a long story.")
    rig.engine.answer(RequestId(1), "Once upon", GPU, done=False)
    rig.settle()
    rig.window.prompt.composer.button.click()
    assert ("cancel", 1) in rig.engine.calls
    rig.settle()
    qtbot.waitUntil(lambda: rig.window.prompt.composer.button.text() == "Send")
    text = rig.window.prompt.transcript.toPlainText()
    assert "Once upon" in text and "stopped" in text


def test_a_refused_prompt_keeps_its_text_and_says_why(rig, monkeypatch) -> None:
    def refuse(*_args):
        raise PromptError("The prompt does not fit: shorten it.")

    monkeypatch.setattr(rig.engine, "submit_chat", refuse)
    rig.write("Too long")
    composer = rig.window.prompt.composer
    assert composer.problem.isVisible() and "shorten it" in composer.problem.text()
    assert composer.editor.toPlainText() == "Too long"


def test_a_dead_backend_ends_the_reply_in_words(rig, qtbot) -> None:
    rig.write("Hello")
    rig.engine.answer(RequestId(1), "Hel", CPU, done=False)
    timings = RequestTimings(990.0, 990.1, 990.5, 991.0)
    rig.engine.publish(
        RequestDone(RequestId(1), CPU, FinishReason.ERROR, 24, 0, 1, timings, message="The CPU backend died.")
    )
    rig.settle()
    transcript = rig.window.prompt.transcript
    qtbot.waitUntil(lambda: "The CPU backend died." in transcript.toPlainText())


def test_text_that_comes_after_the_end_is_not_lost(rig, qtbot) -> None:
    rig.write("Hello")
    rig.engine.answer(RequestId(1), "Good")
    rig.settle()
    qtbot.waitUntil(lambda: rig.window.prompt.composer.button.text() == "Send")
    rig.engine.publish(TextOut(RequestId(1), " morning"))
    rig.settle()
    assert "Good morning" in rig.window.prompt.transcript.toPlainText()


def test_html_in_a_reply_stays_text(rig, qtbot) -> None:
    rig.write("Hello")
    rig.engine.answer(RequestId(1), 'A <img src="file:///etc/passwd"> tag')
    rig.settle()
    qtbot.waitUntil(lambda: rig.window.prompt.composer.button.text() == "Send")
    assert "<img" in rig.window.prompt.transcript.toPlainText()


def test_scrolling_up_holds_while_text_streams(rig, qtbot) -> None:
    transcript = rig.window.prompt.transcript
    rig.write("A long one")
    rig.engine.answer(RequestId(1), "word\n" * 200, done=False)
    rig.settle()
    qtbot.waitUntil(lambda: transcript.verticalScrollBar().maximum() > 500)
    bar = transcript.verticalScrollBar()
    assert bar.value() == bar.maximum()
    bar.setValue(100)
    rig.engine.publish(TextOut(RequestId(1), "more\n" * 50))
    rig.settle()
    qtbot.waitUntil(lambda: "more" in transcript.toPlainText())
    assert bar.value() == 100


def test_sampling_is_set_in_the_popover_and_used(rig) -> None:
    line = rig.window.prompt.composer.sampling_line
    popover = line.open()
    boxes = {box.accessibleName(): box for box in popover.findChildren(object) if hasattr(box, "setSuffix")}
    boxes["Temperature"].setValue(0.2)
    boxes["Seed"].setValue(7)
    popover.close()
    rig.write("Hello")
    sampling = rig.engine.calls[-1][2]
    assert (sampling.temperature, sampling.seed) == (0.2, 7)


def test_the_theme_can_change_while_a_reply_streams(rig, qtbot) -> None:
    transcript = rig.window.prompt.transcript
    rig.write("Hello")
    rig.engine.answer(RequestId(1), "Good", done=False)
    rig.settle()
    qtbot.waitUntil(lambda: "Good" in transcript.toPlainText())
    rig.themes.toggle()
    rig.engine.publish(TextOut(RequestId(1), " morning"))
    rig.settle()
    qtbot.waitUntil(lambda: "Good morning" in transcript.toPlainText())
    lines = [line for line in transcript.toPlainText().split("\n") if line]
    assert lines[1] == "Good morning"
