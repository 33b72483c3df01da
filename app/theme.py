"""Colours, type and the style sheet: every token of the design, one frozen `Theme` per scheme.

Painters read the same object as the style sheet. Nothing here is global: a `ThemeHolder` is made once
and handed to every widget.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication

from app.style import TEMPLATE

Size = Literal["hero", "lead", "body", "label"]
PIXELS: dict[str, int] = {"hero": 32, "lead": 20, "body": 15, "label": 13}
MODES = ("system", "dark", "light")


@dataclass(frozen=True, slots=True)
class BackendColours:
    """fill of marks and bars, its 1 px edge, chart lines, text, and "there but idle"."""

    fill: QColor
    edge: QColor
    line: QColor
    ink: QColor
    tint: QColor


@dataclass(frozen=True)
class Theme:
    name: str
    window: QColor
    panel: QColor
    raised: QColor
    control: QColor
    hover: QColor
    pressed: QColor
    line: QColor
    strong: QColor
    grid: QColor
    track: QColor
    text: QColor
    muted: QColor
    disabled: QColor
    inverse: QColor
    on_inverse: QColor
    focus: QColor
    cpu: QColor
    cpu_edge: QColor
    cpu_line: QColor
    cpu_ink: QColor
    cpu_tint: QColor
    gpu: QColor
    gpu_edge: QColor
    gpu_line: QColor
    gpu_ink: QColor
    gpu_tint: QColor
    third: BackendColours
    fourth: BackendColours
    on_backend: QColor
    emulated: QColor
    success: QColor
    error: QColor
    warning: QColor
    scrim: QColor

    def backend(self, rank: int) -> BackendColours:
        """Colours by rank: 0 = the fastest (blue), 1 = the next (amber), then two greys."""
        if rank == 0:
            return BackendColours(self.gpu, self.gpu_edge, self.gpu_line, self.gpu_ink, self.gpu_tint)
        if rank == 1:
            return BackendColours(self.cpu, self.cpu_edge, self.cpu_line, self.cpu_ink, self.cpu_tint)
        return self.third if rank == 2 else self.fourth


def _theme(name: str, tokens: dict[str, str], scrim_alpha: float, greys: tuple[str, str]) -> Theme:
    colours = {key: QColor(value) for key, value in tokens.items()}
    colours["focus"] = colours["text"]
    colours["scrim"].setAlphaF(scrim_alpha)
    third, fourth = (BackendColours(*(QColor(c) for c in grey.split())) for grey in greys)
    return Theme(name=name, third=third, fourth=fourth, **colours)


DARK = _theme(
    "dark",
    {
        "window": "#14161A", "panel": "#1C1F26", "raised": "#222731", "control": "#262B35",
        "hover": "#303643", "pressed": "#3A4150", "line": "#2A2F3A", "strong": "#3D4452",
        "grid": "#272C36", "track": "#2A2F3A", "text": "#E8EAED", "muted": "#9AA3AF",
        "disabled": "#6B7482", "inverse": "#E8EAED", "on_inverse": "#14161A",
        "cpu": "#E69F00", "cpu_edge": "#E69F00", "cpu_line": "#E69F00", "cpu_ink": "#F0B03A",
        "cpu_tint": "#634C19", "gpu": "#56B4E9", "gpu_edge": "#56B4E9", "gpu_line": "#56B4E9",
        "gpu_ink": "#74C2EE", "gpu_tint": "#30536A", "on_backend": "#14161A", "emulated": "#D98BB5",
        "success": "#3CC796", "error": "#F4824F", "warning": "#F0E442", "scrim": "#14161A",
    },
    0.72,
    ("#A9B1BD #A9B1BD #A9B1BD #C2C8D1 #4A505B", "#858E9B #858E9B #858E9B #A5ADB8 #3C424C"),
)  # fmt: skip
LIGHT = _theme(
    "light",
    {
        "window": "#F7F8FA", "panel": "#FFFFFF", "raised": "#FFFFFF", "control": "#FFFFFF",
        "hover": "#EEF1F5", "pressed": "#E1E6ED", "line": "#D9DEE7", "strong": "#B9C1CE",
        "grid": "#E9ECF1", "track": "#E6EAF0", "text": "#16191D", "muted": "#5B6472",
        "disabled": "#8E97A5", "inverse": "#16191D", "on_inverse": "#FFFFFF",
        "cpu": "#E69F00", "cpu_edge": "#B87C00", "cpu_line": "#B87C00", "cpu_ink": "#8A5B00",
        "cpu_tint": "#F5D999", "gpu": "#56B4E9", "gpu_edge": "#2583BD", "gpu_line": "#2583BD",
        "gpu_ink": "#156699", "gpu_tint": "#BBE1F6", "on_backend": "#14161A", "emulated": "#9C3D74",
        "success": "#00734F", "error": "#B84A00", "warning": "#7A6400", "scrim": "#16191D",
    },
    0.48,
    ("#A9B1BD #6B7482 #6B7482 #4A5260 #DDE1E7", "#858E9B #5B6472 #5B6472 #3F4652 #CDD3DB"),
)  # fmt: skip


@lru_cache(maxsize=64)
def _font(size: str, bold: bool, scale: float) -> QFont:
    system = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    font = QFont(system)
    installed = QFontDatabase.hasFamily("Inter")
    # Naming the system font's hidden family on macOS makes Qt look for it; its own QFont must be kept.
    if installed or not system.family().startswith("."):
        font.setFamilies(["Inter", system.family(), "DejaVu Sans"])
    font.setPixelSize(round(PIXELS[size] * scale))
    font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
    font.setItalic(False)
    font.setFeature(QFont.Tag("tnum"), 1)
    return font


def font(size: Size, bold: bool = False, scale: float = 1.0) -> QFont:
    """One of the four sizes in one of the two weights, figures all of one width."""
    return QFont(_font(size, bold, scale))


class ThemeHolder(QObject):
    """The theme in use. Follows the system's scheme unless `set_mode` said dark or light."""

    changed = Signal()

    def __init__(self, mode: str = "system", parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.mode = mode if mode in MODES else "system"
        self.current = self._resolve()
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._update)

    def set_mode(self, mode: str) -> None:
        self.mode = mode if mode in MODES else "system"
        self._update()

    def toggle(self) -> None:
        """The other scheme than the one on the screen."""
        self.set_mode("light" if self.current.name == "dark" else "dark")

    def _resolve(self) -> Theme:
        hints = QGuiApplication.styleHints()
        dark = self.mode == "dark" or (
            self.mode == "system" and hints.colorScheme() is not Qt.ColorScheme.Light
        )
        theme = DARK if dark else LIGHT
        contrast = getattr(hints, "accessibility", None)  # Qt 6.10
        if contrast and contrast().contrastPreference() is Qt.ContrastPreference.HighContrast:
            theme = replace(theme, line=theme.text)
        return theme

    def _update(self) -> None:
        theme = self._resolve()
        if theme != self.current:
            self.current = theme
            self.changed.emit()


def stylesheet(theme: Theme) -> str:
    """The whole window's style sheet, from the tokens alone."""
    names = {key: value.name() for key, value in vars(theme).items() if isinstance(value, QColor)}
    # A white button on a white panel needs its border; in the dark scheme the fill is enough.
    names["border"] = names["line"] if theme.name == "light" else names["control"]
    # On a raised ground that fill hardly shows.
    names["edge"] = names["line"] if theme.name == "light" else names["strong"]
    out = TEMPLATE
    for key in sorted(names, key=len, reverse=True):
        out = out.replace(f"@{key};", f"{names[key]};")
    return out
