"""Which engine runs, and how another one takes its place: model, emulation and settings all end here."""

from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.bridge import Bridge
from app.preferences import Preferences
from engine.errors import EngineError
from engine.events import Notice
from engine.weights import DEFAULT_WEIGHTS, PolicyWeights, parse_weights

EMULATED = "apple-m2-published"
EMULATED_PRESET = "seed-warm-8"
UNLOADED = "No model is loaded. Choose one in the model menu to go on."


def _real_engine(args: Namespace) -> object:
    from engine.cli import config_from
    from engine.engine import Engine

    return Engine(config_from(args))


class Session(QObject):
    """`args` are the options of the running engine, as the command line would give them."""

    reloaded = Signal()
    said = Signal(object)  # a Notice

    def __init__(
        self,
        bridge: Bridge,
        args: Namespace,
        preferences: Preferences,
        make_engine: Callable[[Namespace], object] = _real_engine,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._bridge, self.args, self.preferences = bridge, args, preferences
        self._make_engine = make_engine
        self.unloaded = False

    def start(self) -> None:
        args = self.args
        self.unloaded = False
        self._bridge.start(lambda: self._make_engine(args))

    def reload(self, **changes: object) -> None:
        """Another engine with these options changed; the old one ends first, its requests with it."""
        self.args = Namespace(**{**vars(self.args), **changes})
        self.start()
        self.reloaded.emit()

    def adopt(self, changes: Mapping[str, object]) -> None:
        """Options that the running engine has taken: the next one begins with them."""
        self.args = Namespace(**{**vars(self.args), **changes})

    def reload_reason(self, slots: str, token_budget: int | None) -> str:
        """Why such slots or such a budget take a reload, "" where not. Raises `EngineError` for nonsense."""
        return self._bridge.reload_reason(slots, token_budget)

    def weights(self) -> PolicyWeights:
        """What total-delay weighs. Where the options make no sense the engine has said so."""
        text = self.value("weights")
        try:
            return DEFAULT_WEIGHTS if text is None else parse_weights(str(text))
        except EngineError:
            return DEFAULT_WEIGHTS

    def emulate(self, profile: str = EMULATED, policy: str | None = None) -> None:
        self.reload(emulate=profile, **({"policy": policy} if policy else {}))

    def choose_model(self, model: str, policy: str | None = None, context: int | None = None) -> None:
        """A catalogue name or a path; it is remembered for the next start, as is the context given."""
        changes: dict[str, object] = {"model": model, **({"context": context} if context else {})}
        self.save(changes)
        self.reload(**changes, emulate=None, **({"policy": policy} if policy else {}))

    def unload(self, words: str = UNLOADED) -> None:
        """End the engine and free its memory; the window stays, and any model can be loaded."""
        self.unloaded = True
        self._bridge.unload(words)
        self.reloaded.emit()

    def save(self, changes: Mapping[str, object]) -> bool:
        """Into settings.json. False where that failed, which is said."""
        try:
            self.preferences.change(changes)
        except EngineError as error:
            self.said.emit(Notice("error", str(error)))
            return False
        return True

    def value(self, key: str) -> object:
        return getattr(self.args, key, None)

    def model_is(self, value: str) -> bool:
        """Whether this catalogue name or path is what runs now."""
        model = str(self.args.model)
        return not self.args.emulate and (model == value or Path(model) == Path(value))
