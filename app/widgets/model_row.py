"""One model in the models sheet: what it is, whether it fits, and what can be done with it."""

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.series.choices import size_text
from app.series.shelf_rows import RowLook
from app.theme import ThemeHolder
from app.widgets.controls import Button
from app.widgets.labels import make_label, set_tone
from app.widgets.panel import ElidedLabel
from engine.shelf import ShelfModel

ICONS = {"Download": "download", "Resume": "download", "Pause": "stop", "Load": "play", "Unload": "close"}
ACTION_WIDTH = 112


class ProgressBar(QWidget):
    """A flat bar, 8 px high; hidden while there is nothing to show."""

    def __init__(self, themes: ThemeHolder, name: str) -> None:
        super().__init__()
        self._themes, self._share = themes, 0.0
        self.setFixedHeight(8)
        self.setAccessibleName(name)
        self.hide()

    def set_share(self, share: float | None) -> None:
        self.setVisible(share is not None)
        if share is not None and share != self._share:
            self._share = max(0.0, min(1.0, share))
            self.setAccessibleDescription(f"{self._share:.0%}")
            self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, theme = QPainter(self), self._themes.current
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        area = QRectF(self.rect())
        for colour, share in ((theme.track, 1.0), (theme.inverse, self._share)):
            painter.setBrush(colour)
            painter.drawRoundedRect(QRectF(0, 0, area.width() * share, area.height()), 2, 2)


class ModelRow(QFrame):
    """Signals carry the model's name. Deleting asks once, in the row itself."""

    acted = Signal(str, str)  # name, action
    delete_confirmed = Signal(str)

    def __init__(self, themes: ThemeHolder, model: ShelfModel) -> None:
        super().__init__()
        self._themes, self.model = themes, model
        self._look: RowLook | None = None
        self._asks = False
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.title = ElidedLabel(model.title)
        self.title.setFont(make_label("", bold=True).font())
        self.note = make_label(model.note, tone="muted")
        self.facts, self.fit = ElidedLabel(), make_label()
        self.facts.setProperty("tone", "muted")
        self.fit.setWordWrap(True)
        self.state = make_label(tone="muted")
        self.state.setWordWrap(True)
        self.bar = ProgressBar(themes, f"Download of {model.title}")
        self.action = Button(themes, "Load")
        self.action.setFixedWidth(ACTION_WIDTH)
        self.action.clicked.connect(lambda: self.acted.emit(model.name, self._look.action))
        self.delete = Button(themes, kind="ghost", icon_name="trash", name=f"Delete {model.title}")
        self.delete.clicked.connect(lambda: self._ask(True))
        keeps = self.delete.sizePolicy()
        keeps.setRetainSizeWhenHidden(True)  # so that the other buttons stand in one column
        self.delete.setSizePolicy(keeps)
        self.sure = Button(themes, "Delete", kind="danger", name=f"Really delete {model.title}")
        self.sure.clicked.connect(self._confirmed)
        self.keep = Button(themes, "Keep", name=f"Keep {model.title}")
        self.keep.clicked.connect(lambda: self._ask(False))
        self._place()

    def _place(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(12)
        head.addWidget(self.title)
        head.addWidget(self.note)
        head.addStretch(1)
        words = QVBoxLayout()
        words.setSpacing(2)
        words.addLayout(head)
        for widget in (self.facts, self.fit, self.state, self.bar):
            words.addWidget(widget)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 8, 0, 8)
        row.setSpacing(8)
        row.addLayout(words, 1)
        for button in (self.action, self.sure, self.keep, self.delete):
            row.addWidget(button, 0, Qt.AlignmentFlag.AlignTop)

    def show_look(self, look: RowLook, size_bytes: float) -> None:
        if look == self._look and not self._asks:
            return
        self._look = look
        self.facts.set_full_text(look.facts)
        self.fit.setText(look.fit)
        set_tone(self.fit, look.fit_tone)
        question = f"Delete {size_text(size_bytes)} from this disk?" if self._asks else look.state
        self.state.setText(question)
        set_tone(self.state, "error" if self._asks else look.state_tone)
        self.state.setVisible(bool(question))
        self.bar.set_share(look.share)
        self.action.setVisible(bool(look.action) and not self._asks)
        self.action.setText(look.action)
        self.action.setAccessibleName(f"{look.action} {self.model.title}")
        self.action.set_icon(ICONS.get(look.action, "play"))
        self.delete.setVisible(look.can_delete and not self._asks)
        self.sure.setVisible(self._asks)
        self.keep.setVisible(self._asks)

    def _ask(self, asks: bool) -> None:
        self._asks = asks
        look, self._look = self._look, None
        self.show_look(look, self.model.size_bytes if self.model.installed else self.model.arrived_bytes)
        (self.keep if asks else self.delete).setFocus()

    def _confirmed(self) -> None:
        self._ask(False)
        self.delete_confirmed.emit(self.model.name)
