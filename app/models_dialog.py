"""The models sheet: what can run here, whether it fits, downloads, loading, unloading, deleting."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QHBoxLayout,
    QLineEdit,
    QPushButton,
    QScrollArea,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.background import Background
from app.downloads import Downloads
from app.series.board import Board
from app.series.shelf_rows import Transfer, load_words, look_of
from app.session import Session
from app.theme import ThemeHolder, font, stylesheet
from app.widgets.controls import Button
from app.widgets.labels import make_label, set_tone
from app.widgets.model_row import ModelRow, ProgressBar
from engine.config import EngineConfig
from engine.errors import EngineError
from engine.models.hub import HubModel, look_up, name_of, parse_reference
from engine.models.store import delete_model
from engine.shelf import Judge, ShelfModel, shelf

WIDTH, HEIGHT, REFRESH_MS = 880, 640, 200
INTRO = (
    "The 135M model is a demonstrator: quick to fetch, weak at answering. Load a larger one for real "
    "answers. Models of other programs are read where they lie and never changed."
)
FOUND = "Found on this machine"


def read_shelf(config: EngineConfig, context: int) -> list[ShelfModel]:
    """Reads headers and may probe a GPU: for a thread."""
    return shelf(Judge(config.options, context))


def look_at(config: EngineConfig, context: int, text: str) -> tuple[HubModel, ShelfModel]:
    """A model on Hugging Face before its download, judged like the others. For a thread."""
    model = look_up(parse_reference(text))
    seen, name = model.found, name_of(model.source)
    fit = Judge(config.options, context).of_inspection(seen)
    row = ShelfModel(
        name, name, "", seen.family, seen.tensor_types, "see its page", seen.size_bytes, False, fit
    )
    return model, row


class ModelsDialog(QDialog):
    """`load_requested` carries a name or path and the context; `open_requested` asks for a file dialog."""

    load_requested = Signal(str, int)
    unload_requested = Signal()
    open_requested = Signal()
    shelf_changed = Signal()

    def __init__(
        self,
        session: Session,
        board: Board,
        themes: ThemeHolder,
        downloads: Downloads,
        parent: QWidget | None = None,
        read: Callable[[EngineConfig, int], list[ShelfModel]] = read_shelf,
        look: Callable[[EngineConfig, int, str], tuple[HubModel, ShelfModel]] = look_at,
    ) -> None:
        super().__init__(parent)
        self._session, self._board, self._themes = session, board, themes
        self._downloads, self._read, self._look_at = downloads, read, look
        self._models: list[ShelfModel] = []
        self.rows: dict[str, ModelRow] = {}
        self._held = False  # the line below the list says something that must stay
        self._reading, self._looking = Background("models-sheet", self), Background("hub-look", self)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Models")
        self.setFixedSize(WIDTH, HEIGHT)
        self._build()
        self._reading.done.connect(self._show_shelf)
        self._reading.failed.connect(lambda words: self._say(words, "error"))
        self._looking.done.connect(self._show_looked)
        self._looking.failed.connect(lambda words: self._say(words, "error"))
        downloads.changed.connect(self._show_rows)
        downloads.finished.connect(lambda _name: self.read_again())
        themes.changed.connect(self._restyle)
        self._restyle()
        self._timer = QTimer(self)
        self._timer.setInterval(REFRESH_MS)
        self._timer.timeout.connect(self._show_rows)
        self._timer.start()
        self.finished.connect(self._end)
        self.read_again()

    def _restyle(self) -> None:
        self.setStyleSheet(stylesheet(self._themes.current))

    def _build(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(32, 24, 32, 24)
        column.setSpacing(12)
        column.addWidget(make_label("Models", "lead", bold=True))
        intro = make_label(INTRO, tone="muted")
        intro.setWordWrap(True)
        column.addWidget(intro)
        column.addLayout(self._context_row())
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
        column.addWidget(area, 1)
        column.addLayout(self._hub_row())
        self.state = make_label(tone="muted")
        self.state.setWordWrap(True)
        self.state.setMinimumHeight(34)
        self.load_bar = ProgressBar(self._themes, "Loading")
        column.addWidget(self.state)
        column.addWidget(self.load_bar)
        column.addLayout(self._buttons())

    def _context_row(self) -> QHBoxLayout:
        self.context = QSpinBox()
        self.context.setRange(32, 1_048_576)
        self.context.setGroupSeparatorShown(True)
        self.context.setSingleStep(1024)
        self.context.setValue(int(self._session.args.context))
        self.context.setAccessibleName("Context at load, tokens")
        self.context.setFont(font("label"))
        self.context.setFixedWidth(112)
        self.context.lineEdit().setTextMargins(8, 0, 0, 0)
        self.context.editingFinished.connect(self.read_again)
        row = QHBoxLayout()
        row.setSpacing(12)
        row.addWidget(make_label("Context at load"))
        row.addWidget(self.context)
        row.addWidget(make_label("tokens. Fit counts every backend's copy and KV pool.", tone="muted"))
        row.addStretch(1)
        return row

    def _hub_row(self) -> QHBoxLayout:
        self.reference = QLineEdit()
        self.reference.setPlaceholderText("owner/repository/file.gguf on Hugging Face")
        self.reference.setAccessibleName("A model on Hugging Face")
        self.reference.setFont(font("label"))
        self.reference.returnPressed.connect(self.look)
        self.look_button = Button(
            self._themes, "Look", icon_name="search", name="Look at it before downloading"
        )
        self.look_button.setAutoDefault(False)
        self.look_button.clicked.connect(self.look)
        self.open_button = Button(self._themes, "Open a GGUF file…")
        self.open_button.clicked.connect(self.open_requested)
        row = QHBoxLayout()
        row.setSpacing(8)
        for widget in (self.reference, self.look_button, self.open_button):
            row.addWidget(widget)
        return row

    def _buttons(self) -> QHBoxLayout:
        self.close_button = Button(self._themes, "Close")
        self.close_button.clicked.connect(self.accept)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(self.close_button)
        return row

    # the list

    def _config(self) -> EngineConfig:
        from engine.cli import config_from

        return config_from(Namespace(**{**vars(self._session.args), "emulate": None}))

    def read_again(self) -> None:
        """Look around again, in a thread."""
        try:
            config = self._config()
        except EngineError as error:
            self._say(str(error), "error")
            return
        context = self.context.value()
        self._reading.start(lambda: self._read(config, context))

    def _show_shelf(self, models: list[ShelfModel]) -> None:
        looked = [m for m in self._models if m.name.startswith("hf:")]
        names = {m.name for m in models}
        self._models = models + [m for m in looked if m.name not in names and not self._arrived(m.name)]
        self._rebuild()
        self.shelf_changed.emit()

    def _arrived(self, name: str) -> bool:
        download = self._downloads.by_name.get(name)
        return download is not None and download.state == "done"

    def _rebuild(self) -> None:
        while self._list.count() > 1:
            widget = self._list.takeAt(0).widget()
            if widget is not None:
                widget.deleteLater()
        self.rows = {}
        heading = ""
        for model in self._models:
            if model.owner and not heading:
                heading = FOUND
                title = make_label(FOUND, bold=True)
                title.setContentsMargins(0, 16, 0, 0)
                self._list.insertWidget(self._list.count() - 1, title)
            row = self.rows[model.name] = ModelRow(self._themes, model)
            row.acted.connect(self.act)
            row.delete_confirmed.connect(self._delete)
            self._list.insertWidget(self._list.count() - 1, row)
        self._show_rows()

    def _transfer(self, name: str) -> Transfer:
        download = self._downloads.by_name.get(name)
        if download is None or download.state == "done":
            return Transfer()
        step = download.step
        words = download.error or (f"{step.title}. {step.detail}" if step is not None else "")
        done = float(step.done or 0.0) if step is not None else 0.0
        return Transfer(download.state, done, float(step.total or 0.0) if step is not None else 0.0, words)

    def _show_rows(self) -> None:
        board, session = self._board, self._session
        for model in self._models:
            loaded = session.model_is(model.name) and not session.unloaded
            look = look_of(model, self._transfer(model.name), loaded, not board.ready)
            size = model.size_bytes if model.installed else model.arrived_bytes
            self.rows[model.name].show_look(look, size)
        if not self._looking.busy and not self._held:
            words, tone, share = load_words(board, session.unloaded)
            if not self._models:
                words, tone = "Looking at the models on this machine …", "muted"
            self._tell(words, tone)
            self.load_bar.set_share(share)

    # what is done

    def _say(self, words: str, tone: str = "muted") -> None:
        self._held = True
        self._tell(words, tone)

    def _tell(self, words: str, tone: str) -> None:
        if words != self.state.text():
            self.state.setText(words)
            self.state.setAccessibleName(words)
        set_tone(self.state, tone)

    def act(self, name: str, action: str) -> None:
        self._held = False
        if action in ("Download", "Resume"):
            self._downloads.start(name)
        elif action == "Pause":
            self._downloads.pause(name)
        elif action == "Load":
            self.load_requested.emit(name, self.context.value())
        elif action == "Unload":
            self.unload_requested.emit()
        self._show_rows()

    def _delete(self, name: str) -> None:
        try:
            delete_model(name)
        except EngineError as error:
            self._say(str(error), "error")
            return
        self._downloads.forget(name)
        self._say(f"{Path(name).name} was deleted.")
        self.read_again()

    def look(self) -> None:
        """Family, tensors and fit of the model on Hugging Face, before anything is downloaded."""
        text = self.reference.text().strip()
        if not text:
            self._say("Write which model: owner/repository/file.gguf.", "error")
            return
        try:
            config = self._config()
        except EngineError as error:
            self._say(str(error), "error")
            return
        context = self.context.value()
        self._say(f"Looking at {text} …")
        self._looking.start(lambda: self._look_at(config, context, text))

    def _show_looked(self, found: tuple[HubModel, ShelfModel]) -> None:
        _model, row = found
        self._models = [row, *(m for m in self._models if m.name != row.name)]
        self._rebuild()
        if row.refused:
            self._say(f"{row.title} cannot be used. {row.fit.words}", "error")
        else:
            self._say(f"{row.title} can be downloaded.")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Return in a field belongs to the field: a dialog would press its first button."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not isinstance(
            self.focusWidget(), QPushButton
        ):
            return
        super().keyPressEvent(event)

    def _end(self) -> None:
        self._timer.stop()
        self._reading.close()
        self._looking.close()
