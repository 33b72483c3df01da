"""The conversation as text: prompts, streamed replies, and under each reply the backend that wrote it.

While a reply streams, plain text is appended; it becomes Markdown once, at its end: parsing it again for
every token would be quadratic. The list of exchanges is the truth, so a new theme just draws it again.
"""

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QDesktopServices,
    QGuiApplication,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QTextCursor,
)
from PySide6.QtWidgets import QMenu, QTextBrowser, QWidget

from app.series.conversation import Exchange
from app.theme import ThemeHolder, font
from app.widgets.controls import Button
from app.widgets.exchange_text import ACTIONS, ExchangeText, mark_image
from app.widgets.markdown import WEB, code_at

EMPTY = "Answers appear here, each signed by the backend that wrote it. Write a prompt below, or press Run."
# Of an exchange that others follow, these two take the place of what follows.
FROM_HERE = {"regenerate": "Regenerate from here", "edit": "Edit and resend from here"}


class Transcript(QTextBrowser):
    """Follows the end only while the reader is at the end."""

    receipt_requested = Signal(int)
    action_requested = Signal(str, int)  # "copy", "regenerate" or "edit", index of the exchange

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self._exchanges: list[Exchange] = []
        self._starts: list[int] = []  # where each exchange begins in the document
        self._opened: set[int] = set()  # ids of exchanges whose thinking is shown
        self.setOpenLinks(False)
        self.setFont(font("body"))
        self.document().setDefaultFont(font("body"))
        self.document().setDocumentMargin(0)
        self.document().setUndoRedoEnabled(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName("Transcript")
        self.anchorClicked.connect(self._clicked)
        self._text = ExchangeText(self.document(), themes)
        self.latest_button = Button(themes, "Latest", icon_name="down", name="Go to the latest", parent=self)
        self.latest_button.hide()
        self.latest_button.clicked.connect(self._go_to_latest)
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._show_latest)
        bar.rangeChanged.connect(self._show_latest)
        themes.changed.connect(self.draw_again)

    def loadResource(self, kind: int, name: QUrl) -> object:
        """Only our own marks: a reply must not make the window read files or the network."""
        if name.scheme() == "mark":
            return mark_image(int(name.path() or 0), self._themes, self.devicePixelRatioF())
        return None

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._exchanges:
            painter = QPainter(self.viewport())
            painter.setFont(font("body"))
            painter.setPen(self._themes.current.muted)
            painter.drawText(self.viewport().rect(), Qt.TextFlag.TextWordWrap, EMPTY)

    # the way back to the end, for as long as the reader is elsewhere

    def resizeEvent(self, event: QResizeEvent) -> None:
        follow = self._at_end()
        super().resizeEvent(event)
        if follow:
            self._scroll_to_end()
        self._show_latest()

    def _show_latest(self) -> None:
        button = self.latest_button
        away = not self._at_end()
        if away:
            size = button.sizeHint()
            button.setGeometry(
                (self.width() - size.width()) // 2, self.height() - size.height() - 8, size.width(), 32
            )
        if away != button.isVisibleTo(self):
            button.setVisible(away)

    def _go_to_latest(self) -> None:
        had_focus = self.latest_button.hasFocus()
        self._scroll_to_end()
        if had_focus:  # it hides, and the focus must not jump to some other panel
            self.setFocus()

    def _at_end(self) -> bool:
        bar = self.verticalScrollBar()
        return bar.value() >= bar.maximum() - 4

    def _scroll_to_end(self) -> None:
        bar = self.verticalScrollBar()
        bar.setValue(bar.maximum())

    # what is written

    def show_exchanges(self, exchanges: list[Exchange]) -> None:
        """Another conversation, from its beginning to its end."""
        self._exchanges = list(exchanges)
        self._opened.clear()
        self.draw_again()
        self._scroll_to_end()

    def add(self, exchange: Exchange) -> None:
        """Show a new prompt; its reply then streams in with `append`."""
        self._exchanges.append(exchange)
        self._draw_from(max(0, len(self._exchanges) - 2))  # the actions below the one before go away
        self._scroll_to_end()

    def append(self, text: str) -> None:
        """More of the last answer, as plain text."""
        follow = self._at_end()
        self._text.append(text)
        if follow:
            self._scroll_to_end()

    def sign(self) -> None:
        """The last exchange has learned more about its backend, or has ended."""
        if not self._exchanges:
            return
        exchange, last = self._exchanges[-1], len(self._exchanges) - 1
        if exchange.done:
            self.draw_last()
            return
        follow = self._at_end()
        self._text.sign_again(exchange, last, True)
        if follow:
            self._scroll_to_end()

    def draw_last(self) -> None:
        """The last exchange from anew: it ended, or its thinking did."""
        self._draw_from(max(0, len(self._exchanges) - 1))

    def draw_again(self) -> None:
        """Everything from the exchanges, with the colours of now."""
        self._draw_from(0)

    def _draw_from(self, first: int) -> None:
        bar, follow = self.verticalScrollBar(), self._at_end()
        place = bar.value()
        if first:
            self._text.remove_from(self._starts[first] - 1)  # with the end of the block before it
        else:
            self.clear()
        del self._starts[first:]
        last = len(self._exchanges) - 1
        edit = QTextCursor(self.document())
        edit.beginEditBlock()  # one layout at the end, instead of one a step
        for index, exchange in enumerate(self._exchanges[first:], start=first):
            opened = id(exchange) in self._opened
            self._starts.append(self._text.draw(exchange, index, index == last, opened))
        edit.endEditBlock()
        if follow:
            self._scroll_to_end()
        else:
            bar.setValue(place)

    # what the reader does

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = self.menu_at(self.cursorForPosition(event.pos()).position())
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(event.globalPos())

    def menu_at(self, position: int) -> QMenu:
        """What can be done with the exchange at this position of the text."""
        index = sum(start <= position for start in self._starts) - 1
        menu = self.createStandardContextMenu()
        if code := code_at(self.document(), position):
            menu.addSeparator()
            menu.addAction("Copy this code").triggered.connect(
                lambda: QGuiApplication.clipboard().setText(code + "\n")
            )
        if index >= 0 and self._exchanges[index].done:
            menu.addSeparator()
            words_of = FROM_HERE if index < len(self._exchanges) - 1 else {}
            for name, words in ACTIONS:
                action = menu.addAction(words_of.get(name, words if name != "copy" else "Copy this reply"))
                action.triggered.connect(lambda _=False, name=name: self.action_requested.emit(name, index))
        return menu

    def _clicked(self, url: QUrl) -> None:
        kind, path = url.scheme(), url.path()
        if kind == "receipt" and path.isdigit():
            self.receipt_requested.emit(int(path))
        elif kind == "do":
            name, _, index = path.partition("/")
            self.action_requested.emit(name, int(index))
        elif kind == "fold" and path.isdigit() and int(path) < len(self._exchanges):
            self._opened ^= {id(self._exchanges[int(path)])}
            self._fold(int(path))
        elif kind in WEB:
            QDesktopServices.openUrl(url)

    def _fold(self, index: int) -> None:
        """Open or close what the model thought, without moving what the reader looks at."""
        bar = self.verticalScrollBar()
        place = bar.value()
        self._draw_from(index)
        bar.setValue(place)
