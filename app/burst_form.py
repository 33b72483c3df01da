"""Your own burst: a small form, or a trace from a file; it runs like a preset."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtWidgets import (
    QDialog,
    QFileDialog,
    QGridLayout,
    QHBoxLayout,
    QSpinBox,
    QWidget,
)

from app.series.own_burst import OwnBurst
from app.theme import ThemeHolder, font, stylesheet
from app.widgets.check_box import CheckBox
from app.widgets.controls import Button
from app.widgets.labels import make_label, set_tone, titled_column
from engine.errors import EngineError

if TYPE_CHECKING:
    from app.main_window import MainWindow
    from engine.experiments.source import Source

MOST_REQUESTS = 200
NAMES, WIDTH, MEANINGS = 168, 112, 336
# key, name, what it means, least, most, at first
FIELDS = (
    ("count", "Requests", "how many prompts arrive", 1, MOST_REQUESTS, 8),
    ("gap_ms", "Time between, ms", "from one arrival to the next; 0 = all at once", 0, 60_000, 50),
    ("prompt", "Prompt, tokens", "of every prompt", 2, 65_536, 516),
    ("shared", "Shared, tokens", "how many of them all prompts have in common", 0, 65_535, 500),
    ("reply", "Reply, tokens", "of every reply, exactly", 1, 16_384, 128),
)
WARM = "The shared tokens are in every cache before the start"
FILES = "Bursts and traces (*.json *.jsonl *.csv);;All files (*)"


class BurstForm(QDialog):
    """`start` is called with the workload's source; it may raise `EngineError`, which is shown."""

    def __init__(
        self, themes: ThemeHolder, parent: QWidget, context_tokens: int, start: Callable[["Source"], None]
    ) -> None:
        super().__init__(parent)
        self._themes, self._context, self._start = themes, context_tokens, start
        self._file: Path | None = None
        self.setWindowTitle("Your own burst")
        self.fields: dict[str, QSpinBox] = {}
        column = titled_column(self, "Your own burst")
        column.addLayout(self._grid())
        self.warm = CheckBox(themes, WARM)
        self.warm.setChecked(True)
        self.warm.toggled.connect(self._changed)
        column.addWidget(self.warm)
        self.words = make_label("", tone="muted")
        self.words.setWordWrap(True)
        self.words.setMinimumHeight(50)
        column.addWidget(self.words)
        column.addLayout(self._buttons())
        themes.changed.connect(self._restyle)
        self._restyle()
        self._changed()

    def _grid(self) -> QGridLayout:
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(8)
        for row, (key, name, meaning, least, most, value) in enumerate(FIELDS):
            box = QSpinBox()
            box.setRange(least, most)
            box.setGroupSeparatorShown(True)
            box.setValue(value)
            box.setFont(font("label"))
            box.setFixedWidth(WIDTH)
            box.lineEdit().setTextMargins(8, 0, 0, 0)
            box.setAccessibleName(name)
            box.setAccessibleDescription(meaning)
            box.valueChanged.connect(self._changed)
            self.fields[key] = box
            title = make_label(name)
            title.setMinimumWidth(NAMES)
            about = make_label(meaning, tone="muted")
            about.setMinimumWidth(MEANINGS)
            grid.addWidget(title, row, 0)
            grid.addWidget(box, row, 1)
            grid.addWidget(about, row, 2)
        grid.setColumnStretch(2, 1)
        return grid

    def _buttons(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)
        self.open_button = Button(self._themes, "Open a file…", tip="A burst as JSON, or a trace")
        self.save_button = Button(self._themes, "Save as JSON…", icon_name="export")
        self.close_button = Button(self._themes, "Close")
        self.run_button = Button(
            self._themes, "Run", kind="primary", icon_name="play", name="Run your own burst"
        )
        self.open_button.clicked.connect(self._choose)
        self.save_button.clicked.connect(self._save)
        self.close_button.clicked.connect(self.reject)
        self.run_button.clicked.connect(self.run)
        self.run_button.setDefault(True)
        for button in (self.open_button, self.save_button, self.close_button):
            button.setAutoDefault(False)
        row.addWidget(self.open_button)
        row.addWidget(self.save_button)
        row.addStretch(1)
        row.addWidget(self.close_button)
        row.addWidget(self.run_button)
        return row

    def burst(self) -> OwnBurst:
        """What the fields say."""
        value = {key: box.value() for key, box in self.fields.items()}
        return OwnBurst(warm=self.warm.isChecked(), **value)

    def _changed(self) -> None:
        self._file = None
        self.fields["shared"].setMaximum(self.fields["prompt"].value() - 1)
        self.warm.setEnabled(self.fields["shared"].value() > 0)
        own = self.burst()
        room = self._context - own.prompt - own.reply
        problem = "" if room >= 0 else f" {-room:,} tokens more than the context of {self._context:,} holds."
        self._tell(own.words() + problem, "error" if problem else "muted")
        self.run_button.setEnabled(not problem)

    def _tell(self, words: str, tone: str = "muted") -> None:
        self.words.setText(words)
        set_tone(self.words, tone)

    def _choose(self) -> None:
        name, _ = QFileDialog.getOpenFileName(self, "Open a burst or a trace", "", FILES)
        if name:
            self.open_file(Path(name))

    def open_file(self, path: Path) -> None:
        """Show what a file holds; Run then runs it. What is wrong with it is said with its line."""
        try:
            source = self._source(path)
        except EngineError as error:
            self._file = None
            self._tell(str(error), "error")
            return
        self._file = path
        self._tell(f"{path.name}: {source.description}. Run starts it; a change above goes back to the form.")
        self.run_button.setEnabled(True)

    def _source(self, path: Path) -> "Source":
        from engine.experiments.source import trace_source
        from engine.workloads.traces import read_trace

        return trace_source(read_trace(path, MOST_REQUESTS), self._context)

    def _save(self) -> None:
        own = self.burst()
        name, _ = QFileDialog.getSaveFileName(self, "Save the burst", f"{own.name()}.json", "JSON (*.json)")
        if name:
            try:
                self._tell(f"Saved. Run it again with: offramp burst --trace {own.save(Path(name))}")
            except EngineError as error:
                self._tell(str(error), "error")

    def run(self) -> None:
        try:
            self._start(self._source(self._file or self.burst().save()))
        except EngineError as error:
            self._tell(str(error), "error")
            return
        self.accept()

    def _restyle(self) -> None:
        self.setStyleSheet(stylesheet(self._themes.current))


def show_burst_form(window: "MainWindow") -> BurstForm:
    """The one form of this window; it keeps what was typed."""
    form = window.findChild(BurstForm)
    if form is None:
        form = BurstForm(window.themes, window, int(window.session.args.context), window.wishes.run_own)
    form.show()
    form.raise_()
    return form
