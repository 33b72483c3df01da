"""Buttons that lead on where nothing goes on by itself: in a row where they fit, else in a column."""

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QWidget

from app.series.next_steps import NextStep
from app.theme import ThemeHolder
from app.widgets.controls import Button

SPACING = 8


class NextSteps(QWidget):
    """`chosen` carries the key of the step. Without steps it is hidden."""

    chosen = Signal(str)

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self._steps: tuple[NextStep, ...] = ()
        self.buttons: list[Button] = []
        self._row = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.setSpacing(SPACING)
        self._row.addStretch(1)
        self.hide()

    def show_steps(self, steps: Sequence[NextStep]) -> None:
        if tuple(steps) != self._steps:
            self._steps = tuple(steps)
            self._make_buttons()
        self.setVisible(bool(steps))

    def _make_buttons(self) -> None:
        for button in self.buttons:
            self._row.removeWidget(button)
            button.deleteLater()
        self.buttons = []
        for step in self._steps:
            button = Button(self._themes, step.text, icon_name=step.icon, name=step.name)
            button.clicked.connect(lambda _=False, key=step.key: self.chosen.emit(key))
            self._row.insertWidget(len(self.buttons), button, 0, Qt.AlignmentFlag.AlignLeft)
            self.buttons.append(button)
        self._arrange()

    def minimumSizeHint(self) -> QSize:
        """Not the width of the row: where that does not fit, the buttons stand below each other."""
        widest = max((b.sizeHint().width() for b in self.buttons), default=0)
        return QSize(widest, self._row.minimumSize().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        needed = sum(b.sizeHint().width() + SPACING for b in self.buttons) - SPACING
        way = QBoxLayout.Direction
        wanted = way.LeftToRight if needed <= self.width() else way.TopToBottom
        if wanted != self._row.direction():
            self._row.setDirection(wanted)
            self.updateGeometry()
