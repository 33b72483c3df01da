"""Rows of the settings: a name, a field, and one line that says what it means."""

from PySide6.QtWidgets import QGridLayout, QLabel, QLineEdit, QWidget

from app.theme import font
from app.widgets.controls import HEIGHT
from app.widgets.labels import make_label

NAMES, WIDTH, NOTES = 168, 208, 400  # px of the three columns
ROW_GAP = 6


class Rows(QGridLayout):
    """Adds what it is given below what is there. `notes` are the labels that explain, by key."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: dict[str, QLabel] = {}
        self.setHorizontalSpacing(16)
        self.setVerticalSpacing(ROW_GAP)
        self.setColumnMinimumWidth(0, NAMES)
        self.setColumnMinimumWidth(2, NOTES)
        self.setColumnStretch(2, 1)

    def heading(self, text: str) -> None:
        at = self.rowCount()
        label = make_label(text, bold=True)
        if at > 1:
            label.setContentsMargins(0, 10, 0, 0)
        self.addWidget(label, at, 0, 1, 3)

    def add(self, key: str, name: str, meaning: str, field: QWidget) -> None:
        at = self.rowCount()
        field.setFont(font("label"))
        field.setFixedSize(WIDTH, HEIGHT)
        if isinstance(field, QLineEdit):  # the window's style makes it lower than what is beside it
            field.setStyleSheet(f"QLineEdit {{ min-height: {HEIGHT - 2}px; }}")
        field.setAccessibleName(name)
        field.setAccessibleDescription(meaning)
        title = make_label(name)
        title.setBuddy(field)
        self.notes[key] = make_label(meaning, tone="muted")
        self.addWidget(title, at, 0)
        self.addWidget(field, at, 1)
        self.addWidget(self.notes[key], at, 2)
