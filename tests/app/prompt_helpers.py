"""What tests of the prompt panel share."""

from collections.abc import Sequence

from fake_engine import GPU
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QTextBlock
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QTextEdit, QWidget

from engine.events import StepDone, TextOut
from engine.request import BackendName, RequestId
from engine.step_report import BackendLoad, StepReport


def answered(rig, qtbot, prompt: str, reply: str, backend: BackendName = GPU) -> int:
    """A prompt and its whole reply. Returns the request's number."""
    rig.write(prompt)
    number = sum(call[0] == "submit_chat" for call in rig.engine.calls)
    rig.engine.answer(RequestId(number), reply, backend)
    rig.settle()
    qtbot.waitUntil(lambda: rig.window.prompt.composer.button.text() == "Send")
    return number


def begun(rig, prompt: str, *pieces: str, backend: BackendName = GPU) -> int:
    """A prompt whose reply streams: `pieces`, a token each. Returns the request's number."""
    rig.write(prompt)
    number = sum(call[0] == "submit_chat" for call in rig.engine.calls)
    rig.engine.answer(RequestId(number), pieces[0] if pieces else "", backend, done=False)
    more(rig, number, *pieces[1:], tokens=len(pieces))
    return number


def more(rig, number: int, *pieces: str, tokens: int | None = None) -> None:
    """More of a reply that streams, shown."""
    request_id = RequestId(number)
    ids = tuple((request_id, 7) for _ in range(len(pieces) if tokens is None else tokens))
    load = BackendLoad(())
    rig.engine.publish(StepDone(StepReport(GPU, 0, 990.0, 990.1, 1, tokens=ids, load=load)))
    rig.engine.publish(*(TextOut(request_id, piece) for piece in pieces))
    rig.settle()
    rig.window.prompt.talks.pump()


def lines(rig) -> list[str]:
    """The transcript's lines that are not empty, as they read."""
    text = rig.window.prompt.transcript.toPlainText().replace("\N{NO-BREAK SPACE}", " ")
    return [line for line in text.split("\n") if line.strip()]


def inks(browser: QTextEdit, text: str) -> set[str]:
    """Colours in which `text` is painted."""
    out: set[str] = set()
    for part in fragments(browser):
        if text in part.text():
            out.add(part.charFormat().foreground().color().name())
    return out


def fragments(browser: QTextEdit) -> list:
    out, block = [], browser.document().begin()
    while block.isValid():
        parts = block.begin()
        while not parts.atEnd():
            out.append(parts.fragment())
            parts += 1
        block = block.next()
    return out


def blocks(browser: QTextEdit) -> list[QTextBlock]:
    out, block = [], browser.document().begin()
    while block.isValid():
        out.append(block)
        block = block.next()
    return out


def contrast(ink: QColor, ground: QColor) -> float:
    """As WCAG 2 defines it."""

    def light(colour: QColor) -> float:
        parts = [colour.redF(), colour.greenF(), colour.blueF()]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    brighter, darker = sorted((light(ink), light(ground)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def controls(root: QWidget) -> list[QWidget]:
    """What a keyboard should reach: everything in `root` that is visible, enabled and takes focus by Tab."""
    return [
        w
        for w in root.findChildren(QWidget)
        if w.isVisible() and w.isEnabled() and w.focusPolicy() & Qt.FocusPolicy.TabFocus
        and w.focusProxy() is None
    ]  # fmt: skip


def walked(start: QWidget, wanted: Sequence[QWidget], key: Qt.Key) -> set[QWidget]:
    """What pressing `key` again and again comes across, from `start`, until all that is `wanted`."""
    seen: set[QWidget] = set()
    start.setFocus()
    for _ in range(150):
        now = QApplication.focusWidget()
        if now is None:
            break
        seen.add(now)
        if seen >= set(wanted):
            break
        QTest.keyClick(now, key)
    return seen
