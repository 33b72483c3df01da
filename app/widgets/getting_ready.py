"""What the engine does before the first prompt: one line a step, with its progress."""

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from app.series.next_steps import OTHER
from app.theme import ThemeHolder, font
from app.widgets.icons import pixmap
from app.widgets.next_steps import NextSteps
from engine.events import SetupStep

TEXT_X = 28


class StepLine(QWidget):
    """Icon, title, detail and, while it is known, a bar."""

    def __init__(self, themes: ThemeHolder, step: SetupStep) -> None:
        super().__init__()
        self._themes, self.step = themes, step
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        themes.changed.connect(self.update)
        self.set_step(step)

    def set_step(self, step: SetupStep) -> None:
        self.step = step
        self.setAccessibleName(f"{step.title}: {step.state}. {step.detail}".rstrip())
        self.setToolTip(step.detail)
        self.setFixedHeight(self.sizeHint().height())
        self.update()

    def _has_bar(self) -> bool:
        return self.step.state == "running" and self.step.done is not None and bool(self.step.total)

    def sizeHint(self) -> QSize:
        return QSize(240, 16 + self._detail_height() + (36 if self._has_bar() else 0) + 16)

    def _detail_height(self) -> int:
        """One line; as many as it takes where something failed, since that says what to do."""
        if not self.step.detail or self.step.state != "failed":
            return 16 if self.step.detail else 0
        room = QRect(0, 0, max(120, self.width() - TEXT_X), 1_000)
        metrics = QFontMetrics(font("label"))
        return metrics.boundingRect(room, Qt.TextFlag.TextWordWrap, self.step.detail).height() + 4

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.setFixedHeight(self.sizeHint().height())

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, theme, step = QPainter(self), self._themes.current, self.step
        looks = {
            "done": ("check", theme.success),
            "failed": ("alert", theme.error),
            "running": ("current", theme.text),
        }
        name, colour = looks.get(step.state, ("circle", theme.disabled))
        painter.drawPixmap(0, 0, pixmap(name, colour, 16, self.devicePixelRatioF()))
        room = self.width() - TEXT_X
        self._line(painter, 0, step.title, theme.muted if step.state == "waiting" else theme.text, room)
        if step.state == "failed" and step.detail:
            painter.setFont(font("label"))
            painter.setPen(theme.error)
            box = QRect(TEXT_X, 18, room, self._detail_height())
            painter.drawText(box, Qt.TextFlag.TextWordWrap, step.detail)
        elif step.detail:
            self._line(painter, 16, step.detail, theme.muted, room)
        if self._has_bar():
            top, share = 22 + self._detail_height(), max(0.0, min(1.0, step.done / step.total))
            painter.fillRect(QRect(TEXT_X, top, room, 8), theme.track)
            painter.fillRect(QRect(TEXT_X, top, round(room * share), 8), theme.inverse)
            self._line(painter, top + 12, _amount(step), theme.text, room, bold=True)

    def _line(
        self, painter: QPainter, y: int, text: str, colour: object, room: int, bold: bool = False
    ) -> None:
        painter.setFont(font("label", bold=bold or (y == 0 and self.step.state == "running")))
        painter.setPen(colour)
        shown = painter.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, room)
        painter.drawText(QRect(TEXT_X, y, room, 16), Qt.AlignmentFlag.AlignVCenter, shown)


def _amount(step: SetupStep) -> str:
    done, total = step.done or 0.0, step.total or 1.0
    if total >= 1_000_000:  # bytes of a download
        return f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
    return f"{100 * done / total:.0f} %" if total <= 1 else f"{done:,.0f} of {total:,.0f}"


class GettingReady(QScrollArea):
    """The list of steps, kept by key: a later event with the same key replaces its line."""

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self._lines: dict[str, StepLine] = {}
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName("Getting ready")
        inner = QWidget()
        self._column = QVBoxLayout(inner)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(0)
        self.way_out = NextSteps(themes)  # below the steps: a download may be of a model that nobody wants
        self._column.addWidget(self.way_out)
        self._column.addStretch(1)
        self.setWidget(inner)

    def show_steps(self, steps: dict[str, SetupStep], under_way: bool = True) -> None:
        """`under_way`: they go on by themselves, so that all one can do is to take another model.

        A step that is no longer among them goes.
        """
        for key in self._lines.keys() - steps.keys():
            self._drop(key)
        for key, step in steps.items():
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = StepLine(self._themes, step)
                self._column.insertWidget(self._column.count() - 2, line)
            elif line.step != step:
                line.set_step(step)
        self.way_out.show_steps((OTHER,) if under_way else ())

    def forget(self) -> None:
        """Another engine begins with its own steps."""
        for key in tuple(self._lines):
            self._drop(key)

    def _drop(self, key: str) -> None:
        line = self._lines.pop(key)
        self._column.removeWidget(line)
        line.hide()
        line.deleteLater()

    @staticmethod
    def summary(steps: dict[str, SetupStep]) -> str:
        """ "step 2 of 6" for the title row."""
        done = sum(1 for step in steps.values() if step.state == "done")
        return f"step {min(done + 1, len(steps))} of {len(steps)}" if steps else ""
