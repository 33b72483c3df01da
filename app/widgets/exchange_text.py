"""One prompt and its reply as blocks of a text document: prompt, thinking, answer, signature, actions."""

import re

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import (
    QColor,
    QImage,
    QPainter,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextImageFormat,
)

from app.series.conversation import Exchange
from app.series.thinking import split
from app.series.words import figure, plural
from app.theme import Size, ThemeHolder, font
from app.widgets.markdown import LINE, insert_markdown
from app.widgets.marks import paint_mark

MARK, INDENT = 12, 20
ACTIONS = (("copy", "Copy"), ("regenerate", "Regenerate"), ("edit", "Edit and resend"))
NBSP = "\N{NO-BREAK SPACE}"
MINIMUM = QTextBlockFormat.LineHeightTypes.MinimumHeight.value


def mark_image(rank: int, themes: ThemeHolder, dpr: float) -> QImage:
    """What `mark:<rank>` stands for."""
    image = QImage(round(MARK * dpr), round(MARK * dpr), QImage.Format.Format_ARGB32_Premultiplied)
    image.setDevicePixelRatio(dpr)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    paint_mark(painter, QRectF(0, 0, MARK, MARK), rank, themes.current)
    painter.end()
    return image


class ExchangeText:
    """Writes exchanges at the end of `document`.

    Its links are `receipt:<request>`, `fold:<index>` and `do:<action>/<index>`.
    """

    def __init__(self, document: QTextDocument, themes: ThemeHolder) -> None:
        self._document, self._themes = document, themes
        self.tail: int | None = None  # where the answer that streams ends
        self.signature_from = 0  # everything from here on is written again when more is known
        self._shape = QTextBlockFormat()  # of the block before it

    def draw(self, exchange: Exchange, index: int, last: bool, opened: bool) -> int:
        """The whole exchange. Returns where it begins. `opened` shows what the model thought."""
        self.tail = None
        cursor = self._end()
        self._block(cursor, 0 if self._document.isEmpty() else 24)
        start = cursor.position()
        cursor.insertText(exchange.prompt, self._format("body", bold=True))
        thought, answer, thinking = split(exchange.reply)
        if thought and (exchange.done or not thinking):
            self._draw_fold(cursor, exchange, index, thought, thinking, opened)
        if exchange.done:
            if answer.strip():
                self._block(cursor, 8)
                insert_markdown(cursor, answer, self._themes.current)
            self.signature_from = cursor.position()
        elif thinking:
            self.signature_from = cursor.position()
        else:
            self._block(cursor, 8)
            cursor.insertText(answer, self._format("body"))
            self.tail = self.signature_from = cursor.position()
        self._shape = cursor.blockFormat()
        self._draw_signature(exchange, index, last)
        return start

    def append(self, text: str) -> None:
        """More of the answer that streams, as plain text."""
        if self.tail is not None:
            cursor = QTextCursor(self._document)
            cursor.setPosition(self.tail)
            cursor.insertText(text, self._format("body"))
            self.tail = self.signature_from = cursor.position()

    def remove_from(self, start: int) -> None:
        """Everything from this position to the end of the document."""
        cursor = QTextCursor(self._document)
        cursor.setPosition(max(0, start))
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()

    def sign_again(self, exchange: Exchange, index: int, last: bool) -> None:
        """What comes after the answer, from anew."""
        self.remove_from(self.signature_from)
        # An answer without any text yet has taken the shape of the line that went.
        self._end().setBlockFormat(self._shape)
        self._draw_signature(exchange, index, last)

    def _draw_signature(self, exchange: Exchange, index: int, last: bool) -> None:
        cursor, theme = self._end(), self._themes.current
        muted = self._format("label", theme.muted)
        if not exchange.done and split(exchange.reply)[2]:
            self._block(cursor, 8)
            cursor.insertText(f"Thinking… {_tokens(exchange)}".rstrip(), muted)
        self._block(cursor, 4, indent=0 if exchange.rank is None else INDENT, hang=exchange.rank is not None)
        if exchange.rank is None:
            waiting = "stopped" if exchange.done and not exchange.problem else "routing…"
            cursor.insertText("" if exchange.problem else waiting, muted)
        else:
            self._draw_mark(cursor, exchange, muted)
            if exchange.progress and not exchange.reply:
                cursor.insertText(f", {exchange.progress}", muted)
            else:
                # A line breaks between two figures, never between a figure and its unit.
                figures = exchange.figures.replace(" ", NBSP).replace(f",{NBSP}", ", ")
                cursor.insertText(f", {figures}{NBSP}{NBSP}" if figures else NBSP * 2, muted)
                if exchange.request_id:
                    cursor.insertText("why?", self._link(f"receipt:{exchange.request_id}", theme.text))
        for words, colour in ((exchange.note, theme.muted), (exchange.problem, theme.error)):
            if words:
                self._block(cursor, 0, indent=INDENT if exchange.rank is not None else 0)
                cursor.insertText(words, self._format("label", colour))
        if exchange.done and last:
            self._draw_actions(cursor, index)

    def _draw_fold(
        self, cursor: QTextCursor, exchange: Exchange, index: int, thought: str, cut: bool, opened: bool
    ) -> None:
        """One line that opens: what a model thinks is not its answer."""
        muted = self._format("label", self._themes.current.muted)
        self._block(cursor, 8)
        words = ", ".join(w for w in ("Thought", _tokens(exchange), "cut short" if cut else "") if w)
        cursor.insertText(f"{words}  ", muted)
        link = self._link(f"fold:{index}", self._themes.current.muted)
        cursor.insertText("hide" if opened else "show", link)
        if opened:
            self._block(cursor, 4, indent=INDENT, line=20)
            cursor.insertText(re.sub(r"\n\s*\n", "\n", thought), muted)

    def _draw_mark(self, cursor: QTextCursor, exchange: Exchange, muted: QTextCharFormat) -> None:
        mark = QTextImageFormat()
        mark.setName(f"mark:{exchange.rank}")
        mark.setWidth(MARK)
        mark.setHeight(MARK)
        cursor.insertImage(mark)
        cursor.insertText("  ", muted)
        ink = self._themes.current.backend(exchange.rank or 0).ink
        cursor.insertText(exchange.backend, self._format("label", ink, bold=True))

    def _draw_actions(self, cursor: QTextCursor, index: int) -> None:
        """What can be done with the last reply; for older ones there is the context menu."""
        self._block(cursor, 0)
        muted = self._themes.current.muted
        for at, (name, words) in enumerate(ACTIONS):
            if at:
                cursor.insertText("   ", self._format("label", muted))
            cursor.insertText(words, self._link(f"do:{name}/{index}", muted))

    def _end(self) -> QTextCursor:
        cursor = QTextCursor(self._document)
        cursor.movePosition(QTextCursor.MoveOperation.End)
        return cursor

    def _block(
        self, cursor: QTextCursor, top: int, indent: int = 0, line: int = LINE, hang: bool = False
    ) -> None:
        """`hang` lets the first line begin at the edge."""
        shape = QTextBlockFormat()
        shape.setTextIndent(-indent if hang else 0)
        shape.setTopMargin(top)
        shape.setLeftMargin(indent)
        shape.setLineHeight(line, MINIMUM)
        if self._document.isEmpty():
            cursor.setBlockFormat(shape)
        else:
            cursor.insertBlock(shape, QTextCharFormat())

    def _link(self, target: str, colour: QColor) -> QTextCharFormat:
        link = self._format("label", colour)
        link.setAnchor(True)
        link.setAnchorHref(target)
        link.setFontUnderline(True)
        return link

    def _format(self, size: Size, colour: QColor | None = None, bold: bool = False) -> QTextCharFormat:
        out = QTextCharFormat()
        out.setFont(font(size, bold=bold))
        out.setForeground(colour or self._themes.current.text)
        return out


def _tokens(exchange: Exchange) -> str:
    count = exchange.thought_tokens
    return f"{figure(count)} {plural(count, 'token')}" if count else ""
