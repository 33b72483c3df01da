"""Four short steps over the window, shown once at the first start and whenever it is asked for."""

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QPoint, QRect, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.theme import ThemeHolder
from app.widgets.controls import Button
from app.widgets.labels import make_label

WIDTH, GAP = 360, 12


@dataclass(frozen=True, slots=True)
class Step:
    title: str
    text: str
    target: Callable[[], QWidget]


class Tour(QWidget):
    """A veil with a hole over what the step is about, and a card beside it. Esc ends it."""

    finished = Signal()

    def __init__(self, themes: ThemeHolder, steps: list[Step], parent: QWidget) -> None:
        super().__init__(parent)
        self._themes, self._steps, self.index = themes, steps, 0
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Tour")
        self.card = QFrame(self)
        self.card.setObjectName("popover")
        column = QVBoxLayout(self.card)
        column.setContentsMargins(20, 16, 20, 16)
        column.setSpacing(8)
        self.title, self.text = make_label("", "body", bold=True), make_label("", tone="")
        self.text.setWordWrap(True)
        self.place_label = make_label("", tone="muted")
        self.skip = Button(themes, "Skip", kind="ghost", name="Skip the tour")
        self.back, self.next = Button(themes, "Back"), Button(themes, "Next", kind="primary")
        self.skip.clicked.connect(self.end)
        self.back.clicked.connect(lambda: self.go(self.index - 1))
        self.next.clicked.connect(lambda: self.go(self.index + 1))
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.place_label)
        row.addStretch(1)
        for button in (self.skip, self.back, self.next):
            row.addWidget(button)
        column.addWidget(self.title)
        column.addWidget(self.text)
        column.addSpacing(4)
        column.addLayout(row)
        self.hide()

    def begin(self) -> None:
        self.go(0)
        self.show()
        self.raise_()
        self.next.setFocus()

    def go(self, index: int) -> None:
        if index >= len(self._steps):
            self.end()
            return
        self.index = max(0, index)
        step = self._steps[self.index]
        self.title.setText(step.title)
        self.text.setText(step.text)
        self.place_label.setText(f"{self.index + 1} of {len(self._steps)}")
        self.back.setEnabled(self.index > 0)
        self.next.setText("Done" if self.index == len(self._steps) - 1 else "Next")
        self.setAccessibleDescription(f"{step.title}. {step.text}")
        self.place()

    def place(self) -> None:
        """Below the target, else above, beside or over it: wherever the card is whole."""
        self.setGeometry(self.parentWidget().rect())
        self.card.setFixedWidth(WIDTH)
        self.card.setFixedHeight(self.card.layout().heightForWidth(WIDTH))
        hole, size, area = self._hole(), self.card.size(), self.rect().adjusted(8, 8, -8, -8)
        offers = (
            QPoint(hole.left(), hole.bottom() + GAP),
            QPoint(hole.right() + GAP, hole.top()),
            QPoint(hole.left() - GAP - size.width(), hole.top()),
            QPoint(hole.left(), hole.top() - GAP - size.height()),
        )
        spots = [QRect(offer, size) for offer in offers]
        middle = QRect(hole.center() - QPoint(size.width() // 2, size.height() // 2), size)
        spot = next((s for s in spots if area.contains(s)), middle)
        self.card.move(
            max(area.left(), min(spot.left(), area.right() - size.width())),
            max(area.top(), min(spot.top(), area.bottom() - size.height())),
        )
        self.update()

    def _hole(self) -> QRect:
        target = self._steps[self.index].target()
        corner = target.mapTo(self.parentWidget(), QPoint(0, 0))
        return QRect(corner, target.size()).adjusted(-4, -4, 4, 4)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, theme = QPainter(self), self._themes.current
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        veil, hole = QPainterPath(), QPainterPath()
        veil.addRect(self.rect().toRectF())
        hole.addRoundedRect(self._hole().toRectF(), 10, 10)
        painter.fillPath(veil.subtracted(hole), theme.scrim)
        painter.setPen(QPen(theme.focus, 2))
        painter.drawPath(hole)
        painter.end()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {Qt.Key.Key_Right: 1, Qt.Key.Key_PageDown: 1, Qt.Key.Key_Left: -1, Qt.Key.Key_PageUp: -1}
        if event.key() == Qt.Key.Key_Escape:
            self.end()
        elif event.key() in steps:
            self.go(self.index + steps[event.key()])
        else:
            super().keyPressEvent(event)

    def end(self) -> None:
        if self.isVisible():
            self.hide()
            self.finished.emit()
