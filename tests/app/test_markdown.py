"""A reply that has ended: Markdown, code in colours, nothing cut off, nothing fetched, nothing obeyed."""

import pytest
from fake_engine import CPU
from prompt_helpers import answered, begun, blocks, contrast, fragments, inks, lines, more
from PySide6.QtCore import QUrl
from PySide6.QtGui import QColor, QFontMetricsF, QGuiApplication, QTextCursor

from app.theme import DARK, LIGHT
from app.widgets.exchange_text import ExchangeText
from app.widgets.highlight import INKS, MOST_CHARACTERS, spans
from app.widgets.markdown import code_font
from engine.events import RequestRouted, StepDone
from engine.receipt import Receipt
from engine.request import RequestId
from engine.step_report import BackendLoad, RequestLoad, StepReport

CODE = """Here:

```python
class Cache(dict):

    def hit(self):  # a comment
        return "text" * 42
```
```rust
fn main() {}
```

Then `inline` words, and

```
no language 😀
```
"""


def test_code_is_coloured_in_both_themes(rig, qtbot) -> None:
    transcript = rig.window.prompt.transcript
    answered(rig, qtbot, "Code?", CODE)
    for theme, column in ((DARK, 0), (LIGHT, 1)):
        rig.themes.set_mode(theme.name)
        wanted = {"class": "Keyword", "return": "Keyword", "# a comment": "Comment",
                  '"text"': "Literal.String", "42": "Literal.Number", "fn": "Keyword"}  # fmt: skip
        for text, kind in wanted.items():
            assert INKS[kind][column].lower() in inks(transcript, text), text
        assert inks(transcript, "no language") == {theme.text.name()}


def test_code_is_readable_on_its_ground() -> None:
    for kind, (dark, light, _bold) in INKS.items():
        assert contrast(QColor(dark), DARK.window) >= 4.5, kind
        assert contrast(QColor(light), LIGHT.window) >= 4.5, kind
        taken = {c.name() for t in (DARK, LIGHT) for c in (t.cpu, t.gpu, t.cpu_ink, t.gpu_ink, t.emulated)}
        assert not taken & {dark.lower(), light.lower()}, f"{kind} looks like a backend"


def test_adjacent_code_is_framed_apart_and_keeps_its_lines(rig, qtbot) -> None:
    transcript = rig.window.prompt.transcript
    answered(rig, qtbot, "Code?", CODE)
    frames = transcript.document().rootFrame().childFrames()
    texts = []
    for frame in frames:
        cursor = frame.firstCursorPosition()
        cursor.setPosition(frame.lastPosition(), QTextCursor.MoveMode.KeepAnchor)
        texts.append(cursor.selectedText().replace("\u2029", "\n"))
    assert texts == [
        'class Cache(dict):\n\n    def hit(self):  # a comment\n        return "text" * 42',
        "fn main() {}",
        "no language 😀",
    ]


@pytest.mark.parametrize(
    "reply", ["# Title\n\nafter", "```python\nreturn 1\n```\nafter", "| a | b |\n|--|--|\n|1|2|\n\nafter"]
)
def test_what_comes_first_in_a_reply_has_its_shape(rig, qtbot, reply) -> None:
    transcript = rig.window.prompt.transcript
    answered(rig, qtbot, "Write", reply)
    shown = blocks(transcript)
    if reply.startswith("#"):
        assert [b.blockFormat().headingLevel() for b in shown if b.text() == "Title"] == [1]
    elif reply.startswith("`"):
        assert inks(transcript, "return") == {INKS["Keyword"][0].lower()}
    else:
        assert [b.text() for b in shown if QTextCursor(b).currentTable()] == ["a", "b", "1", "2"]
    empty = [b for b in shown if not b.text()]
    assert all(b.layout().lineAt(0).height() <= 1 or b.blockFormat().lineHeight() == 1 for b in empty)
    assert "\N{WORD JOINER}" not in transcript.toPlainText()


def test_an_emoji_does_not_shift_the_colours(rig, qtbot) -> None:
    transcript = rig.window.prompt.transcript
    answered(rig, qtbot, "Code?", '```python\nx = "😀😀"\nreturn 42\n```')
    coloured = [f.text() for f in fragments(transcript) if f.charFormat().foreground().color().name() ==
                INKS["Literal.Number"][0].lower()]  # fmt: skip
    assert coloured == ["42"]


def test_code_is_copied_alone(rig, qtbot) -> None:
    transcript = rig.window.prompt.transcript
    answered(rig, qtbot, "Code?", CODE)
    for text, copied in (("hit", True), ("fn", True), ("inline", False)):
        position = transcript.document().find(text).position()
        found = [a for a in transcript.menu_at(position).actions() if a.text() == "Copy this code"]
        assert bool(found) is copied
        if found:
            found[0].trigger()
    assert QGuiApplication.clipboard().text() == "fn main() {}\n"


def test_unknown_languages_and_endless_code_stay_plain() -> None:
    assert list(spans("x = 1", "no-such-language", True)) == []
    assert list(spans("x = 1\n" * MOST_CHARACTERS, "python", True)) == []
    assert [text for *_, bold in spans("def f(): pass", "python", True) for text in [bold]] != []


@pytest.mark.parametrize("width", [1280, 1920])
def test_long_lines_wrap(rig, qtbot, width) -> None:
    transcript = rig.window.prompt.transcript
    rig.window.resize(width, 720)
    wide = "x" * 300
    table = f"| a | b |\n|---|---|\n| {'cell ' * 30} | {'y' * 60} |"
    answered(
        rig, qtbot, f"Prompt {wide}", f"Text {wide}\n\n```python\ny = '{wide}'\n```\n\n    {wide}\n\n{table}"
    )
    assert transcript.document().size().width() <= transcript.viewport().width() + 1
    for block in blocks(transcript):
        layout = block.layout()
        for number in range(layout.lineCount()):
            line = layout.lineAt(number)
            assert line.naturalTextWidth() <= line.width() + 1, block.text()


def test_what_a_reply_links_to_is_never_an_action_or_a_file(rig, qtbot) -> None:
    prompt = rig.window.prompt
    reply = (
        "[a](do:regenerate/0) [b](receipt:1) [c](file:///etc/passwd) [d](https://example.org) ![e](mark:0)"
    )
    answered(rig, qtbot, "Links?", reply)
    hrefs = {f.charFormat().anchorHref() for f in fragments(prompt.transcript) if f.charFormat().isAnchor()}
    ours = {"receipt:1", "do:copy/0", "do:regenerate/0", "do:edit/0"}
    assert hrefs == ours | {"https://example.org"}
    texts = [f.text() for f in fragments(prompt.transcript) if f.charFormat().isAnchor()]
    assert texts == ["d", "why?", "Copy", "Regenerate", "Edit and resend"]
    pictures = [f for f in fragments(prompt.transcript) if f.charFormat().isImageFormat()]
    assert len(pictures) == 1 and "a b c d [picture: e]" in lines(rig)
    assert prompt.transcript.loadResource(2, QUrl("file:///etc/passwd")) is None


def test_headings_have_the_size_of_the_text(rig, qtbot) -> None:
    transcript = rig.window.prompt.transcript
    answered(rig, qtbot, "Write", "# One\n\ntext\n\n### Two")
    for block in blocks(transcript):
        if block.text() in ("One", "Two"):
            assert block.layout().lineAt(0).height() <= 25, block.text()


def test_an_end_draws_one_exchange_again_not_all(rig, qtbot, monkeypatch) -> None:
    drawn = []
    draw = ExchangeText.draw
    monkeypatch.setattr(ExchangeText, "draw", lambda self, e, i, *a: drawn.append(i) or draw(self, e, i, *a))
    for number in range(4):
        answered(rig, qtbot, f"Prompt {number}", CODE)
    assert max(drawn.count(i) for i in range(4)) <= 3  # asked, ended, and once more when another followed
    assert lines(rig).count("fn main() {}") == 4


def test_a_token_that_streams_parses_and_rereads_nothing(rig, monkeypatch) -> None:
    number = begun(rig, "Long?", "A **bold** start")
    calls = []
    for name in ("draw", "remove_from"):
        monkeypatch.setattr(ExchangeText, name, lambda *_a, name=name: calls.append(name))
    monkeypatch.setattr("app.series.conversation.split", lambda *_a: calls.append("split"))
    transcript = rig.window.prompt.transcript
    before = transcript.document().characterCount()
    for _ in range(10):
        more(rig, number, " word")
    assert calls == [] and transcript.document().characterCount() == before + 50
    assert "A **bold** start word word" in transcript.toPlainText()


def test_code_keeps_one_width_per_character() -> None:
    metrics = QFontMetricsF(code_font())
    assert metrics.horizontalAdvance("i") == metrics.horizontalAdvance("W")


def test_an_answer_has_its_shape_whatever_was_signed_before_it(rig) -> None:
    transcript = rig.window.prompt.transcript
    rig.write("Long?")
    receipt = Receipt(RequestId(1), "isolated-rates", "s", CPU, "It is idle.", 990.0, ())
    rig.engine.publish(RequestRouted(receipt))  # "CPU, on its way to the backend", before any text
    for left in (300, 200, 100):
        load = RequestLoad(RequestId(1), 0, 516, 0, left, 0, 128)
        rig.engine.publish(StepDone(StepReport(CPU, 0, 990.0, 990.1, 0, load=BackendLoad((load,)))))
        rig.settle()
        rig.window.prompt.talks.pump()
    assert any("reading 416 of 516 tokens" in line for line in lines(rig))
    more(rig, 1, "It keeps what was read.")

    def shape() -> tuple[float, ...]:
        found = next(b for b in blocks(transcript) if b.text() == "It keeps what was read.").blockFormat()
        return found.topMargin(), found.leftMargin(), found.textIndent(), found.lineHeight()

    streaming = shape()
    rig.engine.answer(RequestId(1), "", CPU)
    rig.settle()
    rig.window.prompt.talks.pump()
    assert rig.window.prompt.talks.live is None
    assert streaming == shape() == (8.0, 0.0, 0.0, 24.0)
