"""Settings: what applies at once and what needs another engine, each said beside its field."""

from argparse import Namespace

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QGridLayout,
    QHBoxLayout,
    QLineEdit,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.series.choices import Choice
from app.session import Session
from app.theme import MODES, ThemeHolder, font, stylesheet
from app.widgets.controls import Button, LabelledCombo
from app.widgets.labels import make_label, set_tone
from engine.config import BLOCK_TOKENS, SCHEDULING_POLICIES
from engine.errors import EngineError
from engine.paths import data_dir

PRIVACY = (
    "Nothing leaves this machine. Prompts, replies and runs stay in the data folder; the network is used "
    "only to fetch a model that you choose."
)
THEMES = {"system": "Follow the system", "dark": "Dark", "light": "Light"}
SCHEDULING = {
    "fcfs": "First come, first served.",
    "shortest-prefill-first": "Who has the least left to read goes first.",
    "round-robin": "Requests that read take turns.",
}
NAMES, WIDTH = 168, 208
# key, name, what it means; the kind of field follows from the key
FIELDS = (
    ("backends", "Backends", "auto, or devices such as cpu,cpu or cpu,cuda:0"),
    ("threads", "Threads of a CPU backend", "automatic: all cores but one are shared"),
    ("slots", "Slots", "requests at once on a backend: 4, or gpu=1,cpu=4"),
    ("token_budget", "Token budget", "tokens a step: automatic is 512, and 2,048 on CUDA"),
    ("kv_blocks", "KV blocks", f"of {BLOCK_TOKENS} tokens each, for every backend"),
    ("scheduling", "Scheduling", "who is served first on a backend"),
    ("context", "Context, tokens", "the longest conversation; no more than the model allows"),
)
RANGES = {"threads": (0, 1024), "token_budget": (15, 65_536), "kv_blocks": (2, 1_000_000),
          "context": (32, 1_048_576)}  # fmt: skip
AUTOMATIC = ("threads", "token_budget")


class SettingsDialog(QDialog):
    """`reload_requested` carries the options that differ from those of the running engine."""

    reload_requested = Signal(object)
    theme_chosen = Signal(str)

    def __init__(self, session: Session, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session, self._themes = session, themes
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Settings")
        self.setStyleSheet(stylesheet(themes.current))
        themes.changed.connect(self._restyle)
        self.fields: dict[str, QWidget] = {}
        column = QVBoxLayout(self)
        column.setContentsMargins(32, 24, 32, 24)
        column.setSpacing(12)
        column.addWidget(make_label("Settings", "lead", bold=True))
        column.addWidget(make_label("Applies at once", bold=True))
        column.addLayout(self._live())
        column.addSpacing(8)
        column.addWidget(make_label("Applies after reload", bold=True))
        column.addLayout(self._engine())
        self.state = make_label("", tone="muted")
        self.state.setWordWrap(True)
        self.state.setMinimumHeight(34)
        column.addWidget(self.state)
        privacy = make_label(PRIVACY, tone="muted")
        privacy.setWordWrap(True)
        column.addWidget(privacy)
        column.addLayout(self._buttons())
        self._look()

    def _restyle(self) -> None:
        self.setStyleSheet(stylesheet(self._themes.current))

    def _live(self) -> QGridLayout:
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(8)
        theme = LabelledCombo(self._themes, "", WIDTH)
        theme.set_choices([Choice(mode, THEMES[mode]) for mode in MODES], THEMES[self._themes.mode])
        theme.chosen.connect(self.theme_chosen)
        self._add(grid, 0, "theme", "Theme", "", theme)
        folder = QLineEdit(str(data_dir()))
        folder.setReadOnly(True)
        self._add(grid, 1, "folder", "Data folder", "models, conversations, runs; OFFRAMP_DATA_DIR moves it",
                  folder)  # fmt: skip
        grid.setColumnStretch(2, 1)
        return grid

    def _engine(self) -> QGridLayout:
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(8)
        args: Namespace = self._session.args
        for row, (key, name, meaning) in enumerate(FIELDS):
            value, field = getattr(args, key), self._field(key)
            if isinstance(field, QSpinBox):
                field.setValue(value or 0)
                field.valueChanged.connect(self._look)
            elif isinstance(field, QComboBox):
                field.setCurrentText(str(value))
                field.currentTextChanged.connect(self._look)
            elif isinstance(field, QLineEdit):
                field.setText(str(value))
                field.textChanged.connect(self._look)
            self._add(grid, row, key, name, meaning, field)
        grid.setColumnStretch(2, 1)
        return grid

    def _field(self, key: str) -> QWidget:
        if key in RANGES:
            box = QSpinBox()
            box.setRange(*RANGES[key])
            box.setGroupSeparatorShown(True)
            box.lineEdit().setTextMargins(8, 0, 0, 0)
            if key in AUTOMATIC:
                box.setSpecialValueText("automatic")  # the value below the first that makes sense
            return box
        if key == "scheduling":
            box = LabelledCombo(self._themes, "", WIDTH)
            box.set_choices([Choice(name, name, SCHEDULING[name]) for name in SCHEDULING_POLICIES])
            return box
        return QLineEdit()

    def _add(self, grid: QGridLayout, row: int, key: str, name: str, meaning: str, field: QWidget) -> None:
        field.setFont(font("label"))
        field.setFixedWidth(WIDTH)
        field.setAccessibleName(name)
        field.setAccessibleDescription(meaning)
        self.fields[key] = field
        title = make_label(name)
        title.setMinimumWidth(NAMES)
        grid.addWidget(title, row, 0)
        grid.addWidget(field, row, 1)
        grid.addWidget(make_label(meaning, tone="muted"), row, 2)

    def _buttons(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)
        self.defaults_button = Button(self._themes, "Defaults", kind="ghost")
        self.defaults_button.clicked.connect(self._defaults)
        self.close_button = Button(self._themes, "Close")
        self.close_button.clicked.connect(self.accept)
        self.reload_button = Button(self._themes, "Reload", kind="primary", icon_name="restart")
        self.reload_button.clicked.connect(self._reload)
        row.addWidget(self.defaults_button)
        row.addStretch(1)
        row.addWidget(self.close_button)
        row.addWidget(self.reload_button)
        return row

    # values

    def value(self, key: str) -> object:
        field = self.fields[key]
        if isinstance(field, QSpinBox):
            automatic = key in AUTOMATIC and field.value() == field.minimum()
            return None if automatic else field.value()
        if isinstance(field, QComboBox):
            return field.currentText().strip()
        return field.text().strip() if isinstance(field, QLineEdit) else None

    def changes(self) -> dict[str, object]:
        """Options that are not those of the running engine."""
        args = self._session.args
        return {key: value for key, *_ in FIELDS if (value := self.value(key)) != getattr(args, key)}

    def problem(self) -> str:
        """Why the engine would refuse these options; "" where it would not."""
        from engine.cli import config_from

        try:
            config_from(Namespace(**{**vars(self._session.args), **self.changes()}))
        except EngineError as error:
            return str(error)
        return ""

    def _look(self) -> None:
        changes, problem = self.changes(), self.problem()
        emulated = bool(self._session.args.emulate)
        if problem:
            words = problem
        elif changes:
            words = "Reload starts the engine anew: running requests end, conversations stay."
            if emulated and changes.keys() & {"backends", "threads"}:
                words += " Backends and threads are the profile's while it is emulated."
        else:
            words = "The engine runs with these settings."
        set_tone(self.state, "error" if problem else "muted")
        self.state.setText(words)
        self.reload_button.setEnabled(bool(changes) and not problem)

    def _defaults(self) -> None:
        from engine.cli import window_parser

        parser = window_parser()
        for key, *_ in FIELDS:
            value, field = parser.get_default(key), self.fields[key]
            if isinstance(field, QSpinBox):
                field.setValue(value or 0)
            elif isinstance(field, QComboBox):
                field.setCurrentText(str(value))
            elif isinstance(field, QLineEdit):
                field.setText(str(value))

    def _reload(self) -> None:
        changes = self.changes()
        if self._session.save(changes):
            self.reload_requested.emit(changes)
            self._look()
