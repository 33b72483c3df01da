"""The models sheet: what can run here, whether it fits, downloads, loading, unloading, deleting."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QDialog, QPushButton, QVBoxLayout, QWidget

from app.background import Background
from app.downloads import Downloads
from app.series.board import Board
from app.series.shelf_rows import Transfer, load_words, look_of
from app.session import Session
from app.theme import ThemeHolder, stylesheet
from app.widgets.model_row import ModelRow
from app.widgets.models_view import ModelsView
from engine.config import EngineConfig
from engine.errors import EngineError
from engine.models.hub import HubModel, look_up, name_of, parse_reference
from engine.models.store import delete_model
from engine.shelf import Judge, ShelfModel, shelf

WIDTH, HEIGHT, REFRESH_MS = 880, 640, 200


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
        self._held = False  # the line below the list says something that must stay
        self._reading, self._looking = Background("models-sheet", self), Background("hub-look", self)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Models")
        self.setFixedSize(WIDTH, HEIGHT)
        self.view = ModelsView(themes, int(session.args.context), self)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.view)
        self._connect_view()
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

    def _connect_view(self) -> None:
        view = self.view
        view.acted.connect(self.act)
        view.delete_confirmed.connect(self._delete)
        view.context_changed.connect(self.read_again)
        view.look_requested.connect(self.look)
        view.open_requested.connect(self.open_requested)
        view.close_requested.connect(self.accept)

    @property
    def rows(self) -> dict[str, ModelRow]:
        """The rows that are shown, by the model's name."""
        return self.view.rows

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
        context = self.view.context.value()
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
        self.view.show_models(self._models)
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
            self.view.say(words, tone)
            self.view.load_bar.set_share(share)

    # what is done

    def _say(self, words: str, tone: str = "muted") -> None:
        self._held = True
        self.view.say(words, tone)

    def act(self, name: str, action: str) -> None:
        self._held = False
        if action in ("Download", "Resume"):
            self._downloads.start(name)
        elif action == "Pause":
            self._downloads.pause(name)
        elif action == "Load":
            self.load_requested.emit(name, self.view.context.value())
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
        text = self.view.reference.text().strip()
        if not text:
            self._say("Write which model: owner/repository/file.gguf.", "error")
            return
        try:
            config = self._config()
        except EngineError as error:
            self._say(str(error), "error")
            return
        context = self.view.context.value()
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
