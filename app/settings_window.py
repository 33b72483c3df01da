"""What the window itself can be told: its colours, its size of text, and where it keeps what it keeps."""

from PySide6.QtCore import QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QLineEdit, QVBoxLayout, QWidget

from app.series.choices import Choice
from app.settings_rows import WIDTH, Rows
from app.text_size import FIT, PERCENTS
from app.theme import MODES, ThemeHolder
from app.widgets.controls import Button, LabelledCombo
from app.widgets.labels import make_label
from engine.paths import data_dir

PRIVACY = (
    "Prompts, replies and runs stay in the data folder. The network is used only to fetch a model that you "
    "choose; with networking off everything else works."
)
THEMES = {"system": "Follow the system", "dark": "Dark", "light": "Light"}
TEXT_SIZES = {FIT: "Fit the screen", **{percent: f"{percent} %" for percent in PERCENTS}}
NOW, LATER = "applies at once", "applies when the window is opened again"


class WindowPage(QWidget):
    """`theme_chosen` and `text_size_chosen` carry what the user picked."""

    theme_chosen = Signal(str)
    text_size_chosen = Signal(str)

    def __init__(self, themes: ThemeHolder, text_size: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(12)
        rows = Rows()
        rows.heading("Appearance")
        self.theme = self._choice(themes, {mode: THEMES[mode] for mode in MODES}, themes.mode)
        self.theme.chosen.connect(self.theme_chosen)
        rows.add("theme", "Theme", NOW, self.theme)
        self.text_size = self._choice(themes, TEXT_SIZES, text_size)
        self.text_size.chosen.connect(self.text_size_chosen)
        rows.add("text_size", "Text size", LATER, self.text_size)
        rows.heading("Nothing leaves this machine")
        self._folder(themes, rows)
        column.addLayout(rows)
        privacy = make_label(PRIVACY, tone="muted")
        privacy.setWordWrap(True)
        column.addWidget(privacy)
        column.addStretch(1)

    @staticmethod
    def _choice(themes: ThemeHolder, names: dict[str, str], current: str) -> LabelledCombo:
        box = LabelledCombo(themes, "", WIDTH)
        box.set_choices([Choice(value, text) for value, text in names.items()], names[current])
        return box

    def _folder(self, themes: ThemeHolder, rows: Rows) -> None:
        path = QLineEdit(str(data_dir()))
        path.setReadOnly(True)
        path.setToolTip(path.text())
        path.setCursorPosition(0)
        rows.add("folder", "Data folder", "models, conversations, runs; OFFRAMP_DATA_DIR moves it", path)
        self.open_button = Button(themes, "Open the folder", icon_name="export")
        self.open_button.setAutoDefault(False)
        self.open_button.clicked.connect(lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(path.text())))
        self.open_button.setFixedWidth(WIDTH)
        rows.addWidget(self.open_button, rows.rowCount(), 1)
