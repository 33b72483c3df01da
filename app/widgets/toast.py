"""What the engine has to say, over the lower edge of the window. An error stays until it is dismissed."""

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QWidget

from app.theme import ThemeHolder
from app.widgets.controls import Button
from app.widgets.icons import pixmap
from app.widgets.labels import make_label
from engine.events import Notice

SHOWN_MS = {"info": 6_000, "warning": 12_000}
WIDEST = 720


class Toast(QFrame):
    def __init__(self, themes: ThemeHolder, parent: QWidget) -> None:
        super().__init__(parent)
        self._themes = themes
        self.setObjectName("popover")
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 8, 8, 8)
        row.setSpacing(12)
        self._icon, self.label = QLabel(), make_label()
        self.label.setWordWrap(True)
        self.close_button = Button(themes, kind="ghost", icon_name="close", name="Dismiss")
        self.close_button.clicked.connect(self.hide)
        row.addWidget(self._icon)
        row.addWidget(self.label, 1)
        row.addWidget(self.close_button)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self.hide)
        self.hide()

    def show_notice(self, notice: Notice) -> None:
        theme = self._themes.current
        colour = {"error": theme.error, "warning": theme.warning}.get(notice.level)
        self._icon.setVisible(colour is not None)
        if colour is not None:
            self._icon.setPixmap(pixmap("alert", colour, 16, self.devicePixelRatioF()))
        self.label.setText(notice.message)
        self.setAccessibleName(f"{notice.level}: {notice.message}")
        self._timer.stop()
        if notice.level in SHOWN_MS:
            self._timer.start(SHOWN_MS[notice.level])
        self.place()
        self.show()
        self.raise_()

    def place(self) -> None:
        """In the middle of the lower edge."""
        window = self.parentWidget()
        text = self.label.fontMetrics().horizontalAdvance(self.label.text()) + 120
        width = min(WIDEST, window.width() - 32, text)
        height = max(48, self.heightForWidth(width))
        self.setGeometry((window.width() - width) // 2, window.height() - height - 16, width, height)
