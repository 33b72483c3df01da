"""The device that a backend really computes on and its weights' format, as small outlined words:
`cuda:0, bf16`, `cpu, int4, 3 threads`. Two backends on one device can differ in the format alone."""

from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QLabel, QWidget

from app.series.words import figure, plural
from app.theme import ThemeHolder, font
from app.widgets.labels import set_tone
from engine.events import BackendInfo

PADDING = 6
NO_GPU = "It was meant for a GPU and computes on the CPU: the log says why."


def device_words(info: BackendInfo, threads: int, short: bool = False) -> str:
    """`threads` of the last step where known, else those it was started with; `short` leaves them out."""
    words = ", ".join(filter(None, (info.device, info.format)))
    count = threads or info.threads
    if info.device.startswith("cpu") and count and not short:
        return f"{words}, {figure(count)} {plural(count, 'thread')}"
    return words


class DeviceBadge(QLabel):
    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self.setFont(font("label"))
        self.setContentsMargins(PADDING, 0, PADDING, 0)
        self.setFixedHeight(20)
        self.hide()

    def show_device(self, info: BackendInfo, threads: int, short: bool = False) -> None:
        """Emulated backends compute nowhere: they carry their own mark instead."""
        self.setVisible(not info.emulated and bool(info.device))
        words = device_words(info, threads, short)
        if words != self.text():
            self.setText(words)
            self.setAccessibleName(f"Runs on {words}")
        fell_back = info.kind == "gpu" and info.device == "cpu"
        set_tone(self, "warning" if fell_back else "muted")
        whole = f"Runs on {info.device_name or info.device}: {device_words(info, threads)}"
        self.setToolTip(NO_GPU if fell_back else whole)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self._themes.current.strong, 1))
        painter.drawRoundedRect(self.rect().toRectF().adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
