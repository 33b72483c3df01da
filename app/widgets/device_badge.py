"""The device that a backend really computes on, as a small outlined word: `cuda:0`, `cpu, 3 threads`."""

from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QLabel, QWidget

from app.series.words import figure, plural
from app.theme import ThemeHolder, font
from app.widgets.labels import set_tone
from engine.events import BackendInfo

PADDING = 6
NO_GPU = "It was meant for a GPU and computes on the CPU: the log says why."


def device_words(info: BackendInfo, threads: int) -> str:
    """`threads` of the last step where known, else those it was started with."""
    count = threads or info.threads
    if info.device.startswith("cpu") and count:
        return f"{info.device}, {figure(count)} {plural(count, 'thread')}"
    return info.device


class DeviceBadge(QLabel):
    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self.setFont(font("label"))
        self.setContentsMargins(PADDING, 0, PADDING, 0)
        self.setFixedHeight(20)
        self.hide()

    def show_device(self, info: BackendInfo, threads: int) -> None:
        """Emulated backends compute nowhere: they carry their own mark instead."""
        self.setVisible(not info.emulated and bool(info.device))
        words = device_words(info, threads)
        if words != self.text():
            self.setText(words)
            self.setAccessibleName(f"Runs on {words}")
        fell_back = info.kind == "gpu" and info.device == "cpu"
        set_tone(self, "warning" if fell_back else "muted")
        self.setToolTip(NO_GPU if fell_back else f"Runs on {info.device_name or words}, {info.format}")

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self._themes.current.strong, 1))
        painter.drawRoundedRect(self.rect().toRectF().adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
