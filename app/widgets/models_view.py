"""What the models sheet looks like: the context, the list of models, a field for Hugging Face, a state."""

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QScrollArea, QSpinBox, QVBoxLayout, QWidget

from app.theme import ThemeHolder, font
from app.widgets.controls import Button
from app.widgets.labels import make_label, set_tone, titled_column
from app.widgets.model_row import ModelRow, ProgressBar
from engine.shelf import ShelfModel

INTRO = (
    "The 135M model is a demonstrator: quick to fetch, weak at answering. Load a larger one for real "
    "answers. Models of other programs are read where they lie and never changed."
)
FOUND = "Found on this machine"


class ModelsView(QWidget):
    """Knows nothing of downloads or engines: it shows rows and passes on what was pressed."""

    acted = Signal(str, str)  # name of a model, words on its button
    delete_confirmed = Signal(str)
    context_changed = Signal()
    look_requested = Signal()
    open_requested = Signal()
    close_requested = Signal()

    def __init__(self, themes: ThemeHolder, context_tokens: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self.rows: dict[str, ModelRow] = {}
        column = titled_column(self, "Models", INTRO)
        column.addLayout(self._context_row(context_tokens))
        column.addWidget(self._area(), 1)
        column.addLayout(self._hub_row())
        self.state = make_label(tone="muted")
        self.state.setWordWrap(True)
        self.state.setMinimumHeight(34)
        self.load_bar = ProgressBar(themes, "Loading")
        column.addWidget(self.state)
        column.addWidget(self.load_bar)
        column.addLayout(self._buttons())

    def _context_row(self, tokens: int) -> QHBoxLayout:
        self.context = QSpinBox()
        self.context.setRange(32, 1_048_576)
        self.context.setGroupSeparatorShown(True)
        self.context.setSingleStep(1024)
        self.context.setValue(tokens)
        self.context.setAccessibleName("Context at load, tokens")
        self.context.setFont(font("label"))
        self.context.setFixedWidth(112)
        self.context.lineEdit().setTextMargins(8, 0, 0, 0)
        self.context.editingFinished.connect(self.context_changed)
        row = QHBoxLayout()
        row.setSpacing(12)
        row.addWidget(make_label("Context at load"))
        row.addWidget(self.context)
        row.addWidget(make_label("tokens. Fit counts every backend's copy and KV pool.", tone="muted"))
        row.addStretch(1)
        return row

    def _area(self) -> QScrollArea:
        area = QScrollArea()
        area.setWidgetResizable(True)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setAccessibleName("Models")
        inner = QWidget()
        self._list = QVBoxLayout(inner)
        self._list.setContentsMargins(0, 0, 16, 0)
        self._list.setSpacing(0)
        self._list.addStretch(1)
        area.setWidget(inner)
        return area

    def _hub_row(self) -> QHBoxLayout:
        self.reference = QLineEdit()
        self.reference.setPlaceholderText("owner/repository/file.gguf on Hugging Face")
        self.reference.setAccessibleName("A model on Hugging Face")
        self.reference.setFont(font("label"))
        self.reference.returnPressed.connect(self.look_requested)
        self.look_button = Button(
            self._themes, "Look", icon_name="search", name="Look at it before downloading"
        )
        self.look_button.setAutoDefault(False)
        self.look_button.clicked.connect(self.look_requested)
        self.open_button = Button(self._themes, "Open a GGUF file…")
        self.open_button.clicked.connect(self.open_requested)
        row = QHBoxLayout()
        row.setSpacing(8)
        for widget in (self.reference, self.look_button, self.open_button):
            row.addWidget(widget)
        return row

    def _buttons(self) -> QHBoxLayout:
        self.close_button = Button(self._themes, "Close")
        self.close_button.clicked.connect(self.close_requested)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(self.close_button)
        return row

    def show_models(self, models: Sequence[ShelfModel]) -> None:
        """A row for each, those of other programs below a heading of their own."""
        while self._list.count() > 1:
            widget = self._list.takeAt(0).widget()
            if widget is not None:
                widget.deleteLater()
        self.rows = {}
        heading = ""
        for model in models:
            if model.owner and not heading:
                heading = FOUND
                title = make_label(FOUND, bold=True)
                title.setContentsMargins(0, 16, 0, 0)
                self._list.insertWidget(self._list.count() - 1, title)
            row = self.rows[model.name] = ModelRow(self._themes, model)
            row.acted.connect(self.acted)
            row.delete_confirmed.connect(self.delete_confirmed)
            self._list.insertWidget(self._list.count() - 1, row)

    def say(self, words: str, tone: str) -> None:
        """The line below the list."""
        if words != self.state.text():
            self.state.setText(words)
            self.state.setAccessibleName(words)
        set_tone(self.state, tone)
