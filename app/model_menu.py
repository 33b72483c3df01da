"""Fills the model menu: catalogue, models of other programs, emulated machines. A thread looks for them.

It also owns the models sheet and the downloads, which go on while the sheet is closed.
"""

import threading
from collections.abc import Callable

from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from app.downloads import Downloads
from app.models_dialog import ModelsDialog
from app.series.board import Board
from app.series.choices import MODELS, OPEN_FILE, Choice, model_choices
from app.session import Session
from app.theme import ThemeHolder
from app.widgets.controls import LabelledCombo
from engine.events import Notice

POLL_MS = 50
JOIN_S = 1.0


def look_around(current: str) -> list[Choice]:
    """Everything the menu offers. Reads folders, so it may take a second."""
    from engine.models.catalog import list_models
    from engine.models.found import find_models
    from engine.profiling.profile import load_profile, published_profiles

    profiles = [(name, load_profile(name).title) for name in published_profiles()]
    return model_choices(list_models(), find_models(), profiles, current)


class ModelMenu(QObject):
    """`refresh` looks again; what the user picks goes to the session."""

    model_chosen = Signal(str)  # catalogue name or path
    load_requested = Signal(str, int)  # the same, and a context in tokens
    profile_chosen = Signal(str)
    sheet_requested = Signal()

    def __init__(
        self,
        combo: LabelledCombo,
        session: Session,
        window: QWidget,
        look: Callable[[str], list[Choice]] = look_around,
    ) -> None:
        super().__init__(window)
        self._combo, self._session, self._window, self._look = combo, session, window, look
        self.downloads = Downloads(parent=self)
        self.downloads.finished.connect(self._fetched)
        self.sheet: ModelsDialog | None = None
        self._found: list[Choice] | None = None
        self._again = False
        self._thread: threading.Thread | None = None
        self._timer = QTimer(self)
        self._timer.setInterval(POLL_MS)
        self._timer.timeout.connect(self._take)
        combo.chosen.connect(self._choose)

    def current(self) -> str:
        args = self._session.args
        return f"emulate:{args.emulate}" if args.emulate else f"model:{args.model}"

    def refresh(self) -> None:
        if self._thread is not None:
            self._again = True
            return
        current = self.current()
        self._found = None

        def work() -> None:
            self._found = self._look(current)

        self._thread = threading.Thread(target=work, name="model-menu", daemon=True)
        self._thread.start()
        self._timer.start()

    def _take(self) -> None:
        if self._thread is None or self._thread.is_alive():
            return
        self._timer.stop()
        self._thread.join()
        self._thread = None
        if self._found is not None:
            self._combo.set_choices(self._found)
        if self._again:
            self._again = False
            self.refresh()

    def _choose(self, value: str) -> None:
        kind, _, name = value.partition(":")
        if value == OPEN_FILE:
            self.open_file()
        elif value == MODELS:
            self.sheet_requested.emit()
        elif value == self.current() and not self._session.unloaded:
            return
        elif kind == "emulate":
            self.profile_chosen.emit(name)
        elif kind == "model":
            self.model_chosen.emit(name)

    def show_sheet(self, board: Board, themes: ThemeHolder) -> ModelsDialog:
        """The models sheet; the open one where there is one."""
        if self.sheet is not None:
            self.sheet.raise_()
            return self.sheet
        sheet = self.sheet = ModelsDialog(self._session, board, themes, self.downloads, self._window)
        sheet.load_requested.connect(self.load_requested)
        sheet.unload_requested.connect(self._session.unload)
        sheet.open_requested.connect(self.open_file)
        sheet.shelf_changed.connect(self.refresh)
        sheet.finished.connect(self._sheet_closed)
        sheet.open()
        return sheet

    def _sheet_closed(self) -> None:
        self.sheet = None

    def _fetched(self, name: str) -> None:
        """A download ended while its sheet is closed: say so."""
        download = self.downloads.by_name.get(name)
        self.refresh()
        if self.sheet is None and download is not None:
            if download.state == "done":
                self._session.said.emit(Notice("info", f"{name} is downloaded: load it from the model menu."))
            elif download.state == "failed":
                self._session.said.emit(Notice("error", download.error))

    def open_file(self) -> QFileDialog:
        dialog = QFileDialog(self._window, "Open a GGUF file", "", "GGUF models (*.gguf);;All files (*)")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.model_chosen)
        dialog.open()
        return dialog

    def close(self) -> None:
        self._timer.stop()
        if self.sheet is not None:
            self.sheet.close()
        self.downloads.close()
        if self._thread is not None:
            self._thread.join(JOIN_S)
