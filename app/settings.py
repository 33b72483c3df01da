"""What the window remembers. Each key is checked alone: a bad one is dropped, the others stay."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from PySide6.QtCore import QByteArray, QSettings

from app.text_size import FIT, TEXT_SIZES
from app.theme import MODES
from engine.errors import EngineError
from engine.request import SamplingParams

SCHEMA = 1
SAVED_SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "seed",
    "max_new_tokens",
    "stop",
)


def _stops(saved: object) -> tuple[str, ...]:
    """Stop strings as JSON keeps them. Raises `TypeError` where they are no list of texts."""
    if not isinstance(saved, list) or not all(isinstance(text, str) for text in saved):
        raise TypeError("stop strings are a list of texts")
    return tuple(saved)


class Settings:
    """Geometry, splitters, theme, text size, sampling, system prompt, last burst and policy."""

    def __init__(self, path: Path | None = None) -> None:
        self._store = (
            QSettings(str(path), QSettings.Format.IniFormat) if path else QSettings("Offramp", "Offramp")
        )
        # A file of another schema is not guessed at: its layout means something else.
        if self._store.contains("schema") and self._text("schema") != str(SCHEMA):
            self._store.clear()
        self._store.setValue("schema", SCHEMA)

    def _text(self, key: str) -> str:
        value = self._store.value(key)
        return value if isinstance(value, str) else "" if value is None else str(value)

    def _checked(self, key: str, good: Callable[[str], bool], default: str = "") -> str:
        value = self._text(key)
        if not value:
            return default
        if good(value):
            return value
        self._store.remove(key)
        return default

    def theme(self) -> str:
        return self._checked("theme", lambda v: v in MODES, "system")

    def set_theme(self, mode: str) -> None:
        self._store.setValue("theme", mode)

    def text_size(self) -> str:
        """One of `TEXT_SIZES`; it counts from the next start."""
        return self._checked("text_size", lambda v: v in TEXT_SIZES, FIT)

    def set_text_size(self, text_size: str) -> None:
        self._store.setValue("text_size", text_size)

    def choice(self, key: str) -> str:
        """The last "preset" or "policy"; "" where there was none."""
        return self._checked(key, lambda v: len(v) < 200 and v.isprintable())

    def set_choice(self, key: str, value: str) -> None:
        self._store.setValue(key, value)

    def tour_seen(self) -> bool:
        return self._text("tour_seen") == "yes"

    def set_tour_seen(self) -> None:
        self._store.setValue("tour_seen", "yes")

    def system_prompt(self) -> str:
        return self._text("system_prompt")

    def set_system_prompt(self, text: str) -> None:
        self._store.setValue("system_prompt", text)

    def sampling(self) -> SamplingParams:
        """Saved values over the defaults; each value that makes no sense is left out."""
        out = SamplingParams()
        try:
            saved = json.loads(self._text("sampling") or "{}")
        except ValueError:
            saved = None
        if not isinstance(saved, dict):
            self._store.remove("sampling")
            return out
        for key in SAVED_SAMPLING:
            try:
                if key in saved:
                    tried = replace(out, **{key: _stops(saved[key]) if key == "stop" else saved[key]})
                    tried.validate()
                    out = tried
            except (EngineError, TypeError):
                continue
        return out

    def set_sampling(self, sampling: SamplingParams) -> None:
        values = asdict(sampling)
        self._store.setValue("sampling", json.dumps({key: values[key] for key in SAVED_SAMPLING}))

    def state(self, key: str) -> QByteArray | None:
        """A saved geometry or splitter state."""
        value = self._store.value(f"state/{key}")
        if isinstance(value, QByteArray) and not value.isEmpty():
            return value
        if value is not None:
            self._store.remove(f"state/{key}")
        return None

    def set_state(self, key: str, value: QByteArray | None) -> None:
        if value is None:
            self._store.remove(f"state/{key}")
        else:
            self._store.setValue(f"state/{key}", value)

    def save(self) -> None:
        self._store.sync()
