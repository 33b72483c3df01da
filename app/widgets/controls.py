"""Buttons, the labelled combo box, the EMULATED mark and the keyboard's focus ring."""

from PySide6.QtCore import QEvent, QObject, QRect, QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QApplication, QComboBox, QLabel, QPushButton, QWidget

from app.series.choices import Choice
from app.theme import ThemeHolder, font
from app.widgets.choice_list import LEFT, ROLE, ChoiceDelegate, model_of, width_for
from app.widgets.icons import icon, pixmap

HEIGHT = 32
RING_GAP = 2
ICON_GAP = 4  # beside the 4 px that Qt leaves itself


class Button(QPushButton):
    """kind = "plain", "primary", "danger", "ghost" or "quiet". Without text it is 32 px square."""

    def __init__(
        self,
        themes: ThemeHolder,
        text: str = "",
        *,
        kind: str = "plain",
        icon_name: str = "",
        name: str = "",
        tip: str = "",
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(text, parent)
        self._themes, self._icon_name = themes, icon_name
        self.setFont(font("label", bold=kind != "quiet"))
        self._gap = ICON_GAP if text else 0
        self.setIconSize(QSize(16 + self._gap, 16))
        self.setAccessibleName(name or text)
        self.setToolTip(tip or ("" if text else name))
        if not text:
            self.setFixedSize(HEIGHT, HEIGHT)
        elif kind != "quiet":
            self.setFixedHeight(HEIGHT)
        self.set_kind(kind)
        themes.changed.connect(self._draw_icon)

    def set_kind(self, kind: str) -> None:
        self.setProperty("kind", kind)
        self.style().unpolish(self)  # a property selector is only read again when polished again
        self.style().polish(self)
        self._draw_icon()

    def set_icon(self, icon_name: str) -> None:
        self._icon_name = icon_name
        self._draw_icon()

    def _draw_icon(self) -> None:
        if not self._icon_name:
            return
        theme = self._themes.current
        colour = {"primary": theme.on_inverse, "danger": theme.error, "ghost": theme.muted}
        ink = colour.get(self.property("kind"), theme.text)
        self.setIcon(icon(self._icon_name, ink, theme.disabled, self._gap))


class LabelledCombo(QComboBox):
    """A combo box that carries its own name: muted name, value in 600, chevron. The value elides.

    `chosen` carries the value of what the user picked. With `keep` the box goes on showing what it showed:
    for a choice that first has to come true.
    """

    chosen = Signal(str)
    opening = Signal()

    def __init__(self, themes: ThemeHolder, name: str, width: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes, self._name = themes, name
        self.setAccessibleName(name)
        self.setFont(font("label"))
        self.setFixedHeight(HEIGHT)
        self.setFixedWidth(width)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMaxVisibleItems(16)
        self._note, self._shown, self.keep = "", "", False
        self._before = -1
        self._delegate = ChoiceDelegate(themes, self)
        self.setItemDelegate(self._delegate)
        self.activated.connect(self._activated)
        themes.changed.connect(self.update)

    def _activated(self, index: int) -> None:
        choice = self.itemData(index, ROLE)
        if self.keep and 0 <= self._before < self.count():
            self.setCurrentIndex(self._before)
        if isinstance(choice, Choice) and choice.value:
            self.chosen.emit(choice.value)

    def showPopup(self) -> None:
        self._before = self.currentIndex()
        self.opening.emit()
        super().showPopup()

    def set_choices(self, choices: list[Choice], current: str = "") -> None:
        """Replace the list without telling anybody; the choice stays if it is still there."""
        keep = current or self.currentText()
        was = self.blockSignals(True)
        self.setModel(model_of(choices, self))
        self._delegate.left = LEFT if any(c.done or c.current or not c.value for c in choices) else 12
        marked = next((i for i, c in enumerate(choices) if c.current), -1)
        at = self.findText(keep)
        first = next((i for i, c in enumerate(choices) if c.value), 0)
        self.setCurrentIndex(marked if marked >= 0 else at if at >= 0 else first)
        self.view().setMinimumWidth(max(self.width(), width_for(choices)))
        self.view().setAccessibleName(self._name)
        self.blockSignals(was)
        self.update()

    def set_shown(self, text: str) -> None:
        """What to show instead of the entry that is current in the list."""
        if text != self._shown:
            self._shown = text
            self.update()

    def shown(self) -> str:
        return self._note or self._shown or self.currentText()

    def _explained(self) -> str:
        """The line that explains what is chosen, unless something else is shown."""
        choice = self.itemData(self.currentIndex(), ROLE)
        plain = not self._note and not self._shown
        return choice.note if plain and isinstance(choice, Choice) else ""

    def set_items(self, items: list[str], current: str = "") -> None:
        """The same with plain names."""
        self.set_choices([Choice(item, item) for item in items], current)

    def set_note(self, note: str) -> None:
        """What to show while there is nothing to choose, such as "Getting ready…"."""
        if note != self._note:
            self._note = note
            self.update()

    def _on_raised(self) -> bool:
        """Whether it stands in a popover or a sheet, where its fill alone would hardly show."""
        above = self.parentWidget()
        while above is not None and above.objectName() not in ("popover", "sheet"):
            above = above.parentWidget()
        return above is not None

    def paintEvent(self, _event: QPaintEvent) -> None:
        theme = self._themes.current
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        hovered = self.underMouse() and self.isEnabled()
        fill = theme.hover if hovered else theme.control
        raised = theme.strong if self._on_raised() else fill
        border = theme.line if theme.name == "light" or not self.isEnabled() else raised
        painter.setPen(QPen(border, 1))
        painter.setBrush(fill if self.isEnabled() else Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(self.rect().toRectF().adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
        left, flags = 13, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft
        value = self.shown() or "n/a"
        bold = font("label", bold=True)
        name = QFontMetrics(font("label")).horizontalAdvance(self._name)
        named = left + (name + 9 if name else 0)
        # Where both do not fit, the value is what one needs to read; the name is in the tooltip.
        if named + QFontMetrics(bold).horizontalAdvance(value) + 28 <= self.width() or self._note:
            painter.setFont(font("label"))
            painter.setPen(theme.muted if self.isEnabled() else theme.disabled)
            painter.drawText(QRect(left, 0, self.width(), self.height()), flags, self._name)
            left = named
        painter.setFont(bold)
        painter.setPen(theme.text if self.isEnabled() else theme.disabled)
        room = self.width() - left - 28
        shown = painter.fontMetrics().elidedText(value, Qt.TextElideMode.ElideRight, room)
        painter.drawText(QRect(left, 0, room, self.height()), flags, shown)
        tip = "\n".join(filter(None, (f"{self._name}: {value}", self._explained())))
        if self.toolTip() != tip:
            self.setToolTip(tip)
        ink = theme.muted if self.isEnabled() else theme.disabled
        chevron = pixmap("chevron", ink, 16, self.devicePixelRatioF())
        painter.drawPixmap(self.width() - 25, (self.height() - 16) // 2, chevron)

    def enterEvent(self, event: QEvent) -> None:
        super().enterEvent(event)
        self.update()

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.update()

    def wheelEvent(self, event: QEvent) -> None:
        event.ignore()  # a wheel turned over the toolbar must not change the policy


class EmulatedMark(QLabel):
    """The permanent sign that the numbers come from a profile: dashed, in a colour of its own."""

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self.setObjectName("emulated")
        self.setFont(font("label"))
        self.setFixedHeight(22)
        self.set_detail("")

    def set_detail(self, detail: str, short: bool = False) -> None:
        """`detail` says which machine's timings; `short` leaves only the word."""
        shown = f"&nbsp;&nbsp;{detail}" if detail and not short else ""
        text = f'<span style="font-weight:600">EMULATED</span>{shown}'
        if text == self.text():
            return
        self.setText(text)
        self.setAccessibleName(f"Emulated: {detail}" if detail else "Emulated")
        self.setToolTip(f"Emulated: {detail}" if detail else "Emulated")

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        pen = QPen(self._themes.current.emulated, 1)
        pen.setDashPattern([3, 3])  # the style sheet's own dashes are dots at 1 px
        painter.setPen(pen)
        painter.drawRoundedRect(self.rect().toRectF().adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)


class FocusRing(QWidget):
    """A 2 px ring 2 px away from the focused widget, shown only when the keyboard moved the focus."""

    def __init__(self, window: QWidget, themes: ThemeHolder) -> None:
        super().__init__(window)
        self._themes, self._target = themes, None
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.hide()
        QApplication.instance().focusChanged.connect(self._focus_changed)
        themes.changed.connect(self.update)

    def _focus_changed(self, _old: QWidget | None, now: QWidget | None) -> None:
        if self._target is not None:
            self._target.removeEventFilter(self)
            self._target = None
        window = self.parentWidget()
        by_keyboard = window.testAttribute(Qt.WidgetAttribute.WA_KeyboardFocusChange)
        if now is None or now.window() is not window or not by_keyboard:
            self.hide()
            return
        self._target = now
        now.installEventFilter(self)
        self._follow()
        self.show()
        self.raise_()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Move, QEvent.Type.Resize):
            self._follow()
        elif event.type() in (QEvent.Type.Hide, QEvent.Type.MouseButtonPress):
            self.hide()
        return False

    def _follow(self) -> None:
        target, reach = self._target, RING_GAP + 2
        corner = target.mapTo(self.parentWidget(), target.rect().topLeft())
        self.setGeometry(QRect(corner, target.size()).adjusted(-reach, -reach, reach, reach))

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self._themes.current.focus, 2))
        painter.drawRoundedRect(self.rect().toRectF().adjusted(1, 1, -1, -1), 8, 8)
