"""The result card: lies over the window when a burst has ended. Esc closes it."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from PySide6.QtCore import QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QGuiApplication, QHideEvent, QKeySequence, QPainter, QPaintEvent, QShortcut
from PySide6.QtWidgets import QFileDialog, QFrame, QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app.panels.result_page import EDGE
from app.panels.result_picture import HEADER, ResultPicture, Shown
from app.theme import ThemeHolder, font
from app.widgets.controls import Button, EmulatedMark
from app.widgets.labels import make_label, make_separator
from app.widgets.panel import ElidedLabel

CARD, LEAST_MARGIN = QSize(1344, 824), 32
FOOTER = 64
FILES = {
    "png": ("Save the result as PNG", "PNG (*.png)"),
    "svg": ("Save the result as SVG", "SVG (*.svg)"),
    "json": ("Export the result", "JSON (*.json)"),
}


@runtime_checkable
class HasRun(Protocol):
    """A single run: its requests can be shown."""

    now: object


class Sheet(Protocol):
    """What can lie over the card, at its right."""

    def place(self, area: QRect) -> None: ...
    def deleteLater(self) -> None: ...


class Page(QWidget):
    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self.shown: Shown | None = None
        themes.changed.connect(self.update)

    def paintEvent(self, _event: QPaintEvent) -> None:
        if self.shown is None:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self.shown.paint(painter, self._themes.current, QRectF(self.rect()))
        painter.end()


class ResultCard(QWidget):
    """A scrim over the whole window with the card in its middle."""

    closed = Signal()
    repeat_requested = Signal()
    history_requested = Signal()
    failed = Signal(str)

    def __init__(self, themes: ThemeHolder, parent: QWidget) -> None:
        super().__init__(parent)
        self._themes = themes
        self.shown: Shown | None = None
        self.requests_of: Callable[[Shown, QWidget], QWidget] | None = None
        self.setAccessibleName("Result")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.card = QFrame(self)
        self.card.setObjectName("card")
        column = QVBoxLayout(self.card)
        column.setContentsMargins(1, 1, 1, 1)
        column.setSpacing(0)
        column.addWidget(self._header())
        column.addWidget(make_separator())
        self.page = Page(themes, self.card)
        self.pages = QStackedWidget(self.card)
        self.pages.addWidget(self.page)
        self.requests: QWidget | None = None  # the table of the run's requests, made when asked for
        self.sheet: Sheet | None = None  # the receipt of one of them
        column.addWidget(self.pages, 1)
        column.addWidget(make_separator())
        column.addWidget(self._footer())
        shortcut = QShortcut(QKeySequence(Qt.Key.Key_Escape), self)
        shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        shortcut.activated.connect(self.close_card)
        self.hide()

    def _header(self) -> QWidget:
        bar = QWidget(self.card)
        bar.setFixedHeight(HEADER)
        row = QHBoxLayout(bar)
        row.setContentsMargins(EDGE, 0, 16, 0)
        row.setSpacing(12)
        self.phrase = ElidedLabel("", bar)
        self.phrase.setFont(font("label"))
        self.phrase.setProperty("tone", "muted")
        self.emulated = EmulatedMark(self._themes, bar)
        close = Button(
            self._themes, kind="ghost", icon_name="close", name="Close the result", tip="Close (Esc)"
        )
        close.clicked.connect(self.close_card)
        row.addWidget(make_label("Result", "body", bold=True))
        row.addWidget(self.phrase, 1)
        row.addWidget(self.emulated)
        row.addWidget(close)
        return bar

    def _footer(self) -> QWidget:
        bar = QWidget(self.card)
        bar.setFixedHeight(FOOTER)
        row = QHBoxLayout(bar)
        row.setContentsMargins(EDGE, 0, EDGE, 0)
        row.setSpacing(8)
        self.buttons = {
            "copy": Button(self._themes, "Copy Markdown", kind="primary", icon_name="copy"),
            "json": Button(self._themes, "Export JSON", icon_name="export"),
            "png": Button(self._themes, "Save PNG", icon_name="download"),
            "svg": Button(self._themes, "Save SVG", icon_name="download"),
        }
        for name, button in self.buttons.items():
            button.clicked.connect(lambda _=False, name=name: self._do(name))
            row.addWidget(button)
        row.addStretch(1)
        self.requests_button = Button(self._themes, "Requests", name="Show the requests")
        self.requests_button.setCheckable(True)
        self.requests_button.toggled.connect(self._turn_page)
        self.history_button = Button(self._themes, "History…", name="Run history")
        self.history_button.clicked.connect(self.history_requested)
        row.addWidget(self.requests_button)
        row.addWidget(self.history_button)
        self.repeat_button = Button(self._themes, "Repeat", icon_name="restart", tip="Run it once more")
        self.repeat_button.clicked.connect(self._repeat)
        row.addWidget(self.repeat_button)
        return bar

    def update_result(self, shown: Shown) -> None:
        """Something about it is known now that was not: paint it again, and leave the focus alone."""
        self.shown = self.page.shown = shown
        self.page.setAccessibleDescription(shown.markdown())
        self.page.update()

    def show_result(self, shown: Shown) -> None:
        self.update_result(shown)
        self.phrase.set_full_text(*shown.phrases())
        self.emulated.setVisible(bool(shown.emulation))
        self.emulated.set_detail("" if shown.emulation == "emulated" else shown.emulation)
        self.page.setAccessibleName(shown.spoken())
        self.lay_over(None)
        self.requests_button.setChecked(False)
        self._forget_requests()
        self.requests_button.setVisible(self.requests_of is not None and isinstance(shown, HasRun))
        self.place()
        self.show()
        self.raise_()
        self.setFocus()
        self.page.update()

    def _turn_page(self, requests: bool) -> None:
        """The figures, or the table of the requests that they come from."""
        if requests and self.requests is None and self.shown is not None and self.requests_of is not None:
            self.requests = self.requests_of(self.shown, self.pages)
            self.pages.addWidget(self.requests)
        self.pages.setCurrentIndex(1 if requests and self.requests is not None else 0)
        self.lay_over(None)
        self.requests_button.setText("Figures" if requests else "Requests")
        self.requests_button.setAccessibleName("Show the figures" if requests else "Show the requests")

    def _forget_requests(self) -> None:
        if self.requests is not None:
            self.pages.removeWidget(self.requests)
            self.requests.deleteLater()
            self.requests = None

    def lay_over(self, sheet: Sheet | None) -> None:
        """`sheet`, a sibling, lies over the card in place of the one before, and goes with the card."""
        before, self.sheet = self.sheet, sheet
        if before is not None:
            before.deleteLater()
        if sheet is not None:
            sheet.place(self.rect())

    def place(self) -> None:
        area = self.parentWidget().rect()
        self.setGeometry(area)
        wide = min(CARD.width(), area.width() - 2 * LEAST_MARGIN)
        high = min(CARD.height(), area.height() - 2 * LEAST_MARGIN)
        self.card.setGeometry(QRect((area.width() - wide) // 2, (area.height() - high) // 2, wide, high))
        if self.sheet is not None:
            self.sheet.place(area)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), self._themes.current.scrim)

    def mousePressEvent(self, event) -> None:
        if not self.card.geometry().contains(event.position().toPoint()):
            self.close_card()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.lay_over(None)

    def close_card(self) -> None:
        self.hide()
        self.closed.emit()

    def _repeat(self) -> None:
        self.close_card()
        self.repeat_requested.emit()

    # what can be taken away

    def _do(self, name: str) -> None:
        if self.shown is None:
            return
        if name == "copy":
            QGuiApplication.clipboard().setText(self.shown.markdown())
            return
        title, kind = FILES[name]
        dialog = QFileDialog(self, title, f"{self.shown.stem}.{name}", kind)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(name)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(lambda path: self.save(path, name))
        dialog.open()

    def save(self, path: str, kind: str) -> bool:
        """Write the result as "png", "svg" or "json". False where that failed, which is said."""
        if self.shown is None:
            return False
        try:
            if kind == "json":
                Path(path).write_text(self.shown.json(), encoding="utf-8")
                return True
            picture = ResultPicture(self.shown, self.phrase.full_text(), self._themes.current)
            if picture.save_png(path) if kind == "png" else picture.save_svg(path):
                return True
            reason = "it cannot be written there"
        except OSError as error:
            reason = str(error.strerror)
        self.failed.emit(f"The result was not saved: {reason}. Choose another folder.")
        return False
