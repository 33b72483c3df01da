"""The engine's options as rows of the settings: which the running backends can take, which need a reload."""

from argparse import Namespace

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QLineEdit, QSpinBox, QVBoxLayout, QWidget

from app.series.choices import Choice
from app.session import Session
from app.settings_rows import WIDTH, Rows
from app.theme import ThemeHolder
from app.widgets.controls import LabelledCombo
from app.widgets.labels import make_label, set_tone
from engine.config import BLOCK_TOKENS, SCHEDULING_POLICIES
from engine.errors import EngineError

SCHEDULING = {
    "fcfs": "First come, first served.",
    "shortest-prefill-first": "Who has the least left to read goes first.",
    "round-robin": "Requests that read take turns.",
}
# key, name, what it means; the kind of field follows from the key
LIVE = (
    ("slots", "Slots", "requests at once on a backend: 4, or gpu=1,cpu=4, or auto"),
    ("token_budget", "Token budget", "tokens a step: automatic is 512, and 2,048 on CUDA"),
)
RELOADED = (
    ("backends", "Backends", "auto, or devices such as cpu,cpu or cpu,cuda:0"),
    ("threads", "Threads of a CPU backend", "automatic: all cores but one are shared"),
    ("kv_blocks", "KV blocks", f"of {BLOCK_TOKENS} tokens each, for every backend"),
    ("scheduling", "Scheduling", "who is served first on a backend"),
    ("context", "Context, tokens", "the longest conversation; no more than the model allows"),
)
FIELDS = (*LIVE, *RELOADED)
RANGES = {"threads": (0, 1024), "token_budget": (15, 65_536), "kv_blocks": (2, 1_000_000),
          "context": (32, 1_048_576)}  # fmt: skip
AUTOMATIC = ("threads", "token_budget")


class BackendsPage(QWidget):
    """`looked` says that values, and with them what can be done about them, may have changed."""

    looked = Signal()

    def __init__(self, session: Session, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session, self._themes = session, themes
        self.fields: dict[str, QWidget] = {}
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(12)
        self.rows = Rows()
        self.rows.heading("Applies at once, as far as a backend was prepared for it")
        self._fill(LIVE)
        self.rows.heading("Applies after reload")
        self._fill(RELOADED)
        column.addLayout(self.rows)
        self.state = make_label("", tone="muted")
        self.state.setWordWrap(True)
        self.state.setMinimumHeight(34)
        column.addWidget(self.state)
        column.addStretch(1)
        self.look()

    def _fill(self, fields: tuple[tuple[str, str, str], ...]) -> None:
        args: Namespace = self._session.args
        for key, name, meaning in fields:
            field = self.fields[key] = self._field(key)
            _show(field, getattr(args, key))
            if isinstance(field, QSpinBox):
                field.valueChanged.connect(self.look)
            elif isinstance(field, QComboBox):
                field.currentTextChanged.connect(self.look)
            elif isinstance(field, QLineEdit):
                field.textChanged.connect(self.look)
            self.rows.add(key, name, meaning, field)

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
            self._session.reload_reason(str(self.value("slots")), self.value("token_budget"))
        except EngineError as error:
            return str(error)
        return ""

    def live(self) -> bool:
        """Whether the running backends can take every change."""
        changes = self.changes()
        return bool(changes) and changes.keys() <= {key for key, *_ in LIVE} and not any(self._reasons())

    def _reasons(self) -> tuple[str, str]:
        """Why the slots, and why the token budget, take a reload; "" where they do not."""
        args, changes = self._session.args, self.changes()
        slots, budget = str(self.value("slots")), self.value("token_budget")
        try:
            return (
                self._session.reload_reason(slots, args.token_budget) if "slots" in changes else "",
                self._session.reload_reason(args.slots, budget) if "token_budget" in changes else "",
            )
        except EngineError:
            return "", ""  # the problem is said already

    def look(self) -> None:
        """Say what the values mean for the engine that runs."""
        changes, problem = self.changes(), self.problem()
        for (key, _, meaning), reason in zip(LIVE, self._reasons(), strict=True):
            note = self.rows.notes[key]
            set_tone(note, "warning" if reason else "muted")
            note.setText(reason or meaning)
            self.fields[key].setAccessibleDescription(reason or meaning)
        if problem:
            words = problem
        elif self.live():
            words = "Apply tells the running backends: who has begun finishes, and the next ones find it so."
        elif changes:
            words = "Reload starts the engine anew: running requests end, conversations stay."
            if self._session.args.emulate and changes.keys() & {"backends", "threads"}:
                words += " Backends and threads are the profile's while it is emulated."
        else:
            words = "The engine runs with these settings."
        set_tone(self.state, "error" if problem else "muted")
        self.state.setText(words)
        self.looked.emit()

    def use_defaults(self) -> None:
        from engine.cli import window_parser

        parser = window_parser()
        for key, field in self.fields.items():
            _show(field, parser.get_default(key))


def _show(field: QWidget, value: object) -> None:
    if isinstance(field, QSpinBox):
        field.setValue(value if isinstance(value, int) else 0)
    elif isinstance(field, QComboBox):
        field.setCurrentText(str(value))
    elif isinstance(field, QLineEdit):
        field.setText(str(value))
