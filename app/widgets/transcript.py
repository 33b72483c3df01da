"""The conversation as text: prompts, streamed replies, and under each reply the backend that wrote it.

While a reply streams, plain text is appended; it becomes Markdown once, at its end: parsing it again for
every token would be quadratic. The list of exchanges is the truth, so a new theme just draws it again.
"""

from PySide6.QtCore import QRectF, Qt, QUrl, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QDesktopServices,
    QImage,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
)
from PySide6.QtWidgets import QTextBrowser, QWidget

from app.series.conversation import Exchange
from app.theme import ThemeHolder, font
from app.widgets.controls import Button
from app.widgets.marks import paint_mark

MARK = 12
LINE = 24
EMPTY = "Answers appear here, each signed by the backend that wrote it. Write a prompt below, or press Run."
ACTIONS = (("copy", "Copy"), ("regenerate", "Regenerate"), ("edit", "Edit and resend"))
MARKDOWN = QTextDocument.MarkdownFeature.MarkdownDialectGitHub | QTextDocument.MarkdownFeature.MarkdownNoHTML


class Transcript(QTextBrowser):
    """Follows the end only while the reader is at the end."""

    receipt_requested = Signal(int)
    action_requested = Signal(str, int)  # "copy", "regenerate" or "edit", index of the exchange

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self._exchanges: list[Exchange] = []
        self._tail: QTextCursor | None = None  # the end of the reply that streams
        self._signature_from = 0
        self.setOpenLinks(False)
        self.setFont(font("body"))
        self.document().setDefaultFont(font("body"))
        self.document().setDocumentMargin(0)
        self.document().setUndoRedoEnabled(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName("Transcript")
        self.anchorClicked.connect(self._clicked)
        self._starts: list[int] = []  # where each exchange begins in the document
        self.latest_button = Button(themes, "Latest", icon_name="down", name="Go to the latest", parent=self)
        self.latest_button.hide()
        self.latest_button.clicked.connect(self._scroll_to_end)
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._show_latest)
        bar.rangeChanged.connect(self._show_latest)
        themes.changed.connect(self.draw_again)

    def loadResource(self, kind: int, name: QUrl) -> object:
        """Only our own marks: a reply must not make the window read files or the network."""
        if name.scheme() == "mark":
            return self._mark_image(int(name.path() or 0))
        return None

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._exchanges:
            painter = QPainter(self.viewport())
            painter.setFont(font("body"))
            painter.setPen(self._themes.current.muted)
            painter.drawText(self.viewport().rect(), Qt.TextFlag.TextWordWrap, EMPTY)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show_latest()

    def _show_latest(self) -> None:
        """A way back to the end, for as long as the reader is elsewhere."""
        button = self.latest_button
        away = not self._at_end()
        if away:
            size = button.sizeHint()
            button.setGeometry(
                (self.width() - size.width()) // 2, self.height() - size.height() - 8, size.width(), 32
            )
        if away != button.isVisibleTo(self):
            button.setVisible(away)

    def show_exchanges(self, exchanges: list[Exchange]) -> None:
        """Another conversation, from its beginning to its end."""
        self._exchanges, self._tail = list(exchanges), None
        self.draw_again()
        self._scroll_to_end()

    def add(self, exchange: Exchange) -> None:
        """Show a new prompt; its reply then streams in with `append`."""
        self._exchanges.append(exchange)
        if len(self._exchanges) > 1:
            self.draw_again()  # the actions below the one before go away
        else:
            self._draw(exchange)
        self._scroll_to_end()

    def append(self, text: str) -> None:
        """More of the last reply, as plain text."""
        if self._tail is None or not text:
            return
        follow = self._at_end()
        self._exchanges[-1].reply += text
        before = self._tail.position()
        self._tail.insertText(text, self._format("body"))
        self._signature_from += self._tail.position() - before
        if follow:
            self._scroll_to_end()

    def sign(self) -> None:
        """The last exchange has learned more about its backend: write its signature again."""
        if self._tail is None:
            return
        follow = self._at_end()
        exchange = self._exchanges[-1]
        if exchange.done:
            self.draw_again()
        else:
            self._remove(self._signature_from)
            self._draw_signature(exchange)
        if follow:
            self._scroll_to_end()

    def draw_again(self) -> None:
        """Everything from the exchanges, with the colours of now."""
        bar, follow = self.verticalScrollBar(), self._at_end()
        place, self._tail = bar.value(), None
        self.clear()
        self._starts.clear()
        for exchange in self._exchanges:
            self._draw(exchange)
        if follow:
            self._scroll_to_end()
        else:
            bar.setValue(place)

    def _remove(self, start: int) -> None:
        cursor = QTextCursor(self.document())
        cursor.setPosition(start)
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()

    def _draw(self, exchange: Exchange) -> None:
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        self._block(cursor, 0 if self.document().isEmpty() else 24)
        self._starts.append(cursor.position())
        cursor.insertText(exchange.prompt, self._format("body", bold=True))
        self._block(cursor, 8)
        if exchange.done:
            self._tail = None
            self._draw_markdown(cursor, exchange.reply)
        else:
            cursor.insertText(exchange.reply, self._format("body"))
            self._tail = QTextCursor(cursor)
            # The signature comes after the tail; a tail that kept moving with it would write behind it.
            self._tail.setKeepPositionOnInsert(True)
        self._signature_from = cursor.position()
        self._draw_signature(exchange)
        if self._tail is not None:
            self._tail.setKeepPositionOnInsert(False)

    def _draw_markdown(self, cursor: QTextCursor, text: str) -> None:
        start = cursor.position()
        cursor.insertMarkdown(text.strip() or " ", MARKDOWN)
        cursor.movePosition(QTextCursor.MoveOperation.End)
        last = cursor.position()
        block = self.document().findBlock(start)
        while block.isValid() and block.position() <= last:
            here = QTextCursor(block)
            here.movePosition(QTextCursor.MoveOperation.EndOfBlock, QTextCursor.MoveMode.KeepAnchor)
            shape = QTextBlockFormat()
            shape.setLineHeight(LINE, QTextBlockFormat.LineHeightTypes.MinimumHeight.value)
            shape.setTopMargin(8 if block.position() >= start else 0)
            shape.setBottomMargin(0)
            here.mergeBlockFormat(shape)
            if block.blockFormat().headingLevel():
                here.mergeCharFormat(self._format("body", bold=True))
            block = block.next()

    def _draw_signature(self, exchange: Exchange) -> None:
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        theme = self._themes.current
        muted = self._format("label", theme.muted)
        self._block(cursor, 4)
        if exchange.rank is None:
            waiting = "stopped" if exchange.done and not exchange.problem else "routing…"
            cursor.insertText("" if exchange.problem else waiting, muted)
        elif exchange.progress and not exchange.reply:
            self._mark(cursor, exchange, muted)
            cursor.insertText(f", {exchange.progress}", muted)
        else:
            self._mark(cursor, exchange, muted)
            cursor.insertText(f", {exchange.figures}  " if exchange.figures else "  ", muted)
            if exchange.request_id:
                cursor.insertText("why?", self._link(f"receipt:{exchange.request_id}", theme.text))
        for words, colour in ((exchange.note, theme.muted), (exchange.problem, theme.error)):
            if words:
                self._block(cursor, 0, indent=20 if exchange.rank is not None else 0)
                cursor.insertText(words, self._format("label", colour))
        if exchange.done and exchange is self._exchanges[-1]:
            self._draw_actions(cursor, exchange)

    def _mark(self, cursor: QTextCursor, exchange: Exchange, muted: QTextCharFormat) -> None:
        cursor.insertHtml(f'<img src="mark:{exchange.rank}" width="{MARK}" height="{MARK}">')
        cursor.insertText("  ", muted)
        ink = self._themes.current.backend(exchange.rank or 0).ink
        cursor.insertText(exchange.backend, self._format("label", ink, bold=True))

    def _draw_actions(self, cursor: QTextCursor, exchange: Exchange) -> None:
        """What can be done with the last reply; for older ones there is the context menu."""
        self._block(cursor, 0)
        index, muted = len(self._exchanges) - 1, self._themes.current.muted
        for at, (name, words) in enumerate(ACTIONS):
            if at:
                cursor.insertText("   ", self._format("label", muted))
            cursor.insertText(words, self._link(f"do:{name}/{index}", muted))

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        place = self.cursorForPosition(event.pos()).position()
        index = sum(start <= place for start in self._starts) - 1
        menu = self.createStandardContextMenu()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        if index >= 0 and self._exchanges[index].done:
            menu.addSeparator()
            for name, words in ACTIONS:
                action = menu.addAction(words)
                action.triggered.connect(lambda _=False, name=name: self.action_requested.emit(name, index))
        menu.popup(event.globalPos())

    def _block(self, cursor: QTextCursor, top: int, indent: int = 0) -> None:
        shape = QTextBlockFormat()
        shape.setTopMargin(top)
        shape.setLeftMargin(indent)
        shape.setLineHeight(LINE, QTextBlockFormat.LineHeightTypes.MinimumHeight.value)
        if self.document().isEmpty():
            cursor.setBlockFormat(shape)
        else:
            cursor.insertBlock(shape, QTextCharFormat())

    def _link(self, target: str, colour: object) -> QTextCharFormat:
        link = self._format("label", colour)
        link.setAnchor(True)
        link.setAnchorHref(target)
        link.setFontUnderline(True)
        return link

    def _format(self, size: str, colour: object = None, bold: bool = False) -> QTextCharFormat:
        out = QTextCharFormat()
        out.setFont(font(size, bold=bold))
        out.setForeground(colour or self._themes.current.text)
        return out

    def _mark_image(self, rank: int) -> QImage:
        dpr = self.devicePixelRatioF()
        image = QImage(round(MARK * dpr), round(MARK * dpr), QImage.Format.Format_ARGB32_Premultiplied)
        image.setDevicePixelRatio(dpr)
        image.fill(Qt.GlobalColor.transparent)
        painter = QPainter(image)
        paint_mark(painter, QRectF(0, 0, MARK, MARK), rank, self._themes.current)
        painter.end()
        return image

    def _at_end(self) -> bool:
        bar = self.verticalScrollBar()
        return bar.value() >= bar.maximum() - 4

    def _scroll_to_end(self) -> None:
        bar = self.verticalScrollBar()
        bar.setValue(bar.maximum())

    def _clicked(self, url: QUrl) -> None:
        if url.scheme() == "receipt" and url.path().isdigit():
            self.receipt_requested.emit(int(url.path()))
        elif url.scheme() == "do":
            name, _, index = url.path().partition("/")
            self.action_requested.emit(name, int(index))
        elif url.scheme() in ("http", "https"):
            QDesktopServices.openUrl(url)
