"""How large everything in the window is drawn: a factor that Qt takes once, before the window is made."""

import os
import sys
from collections.abc import MutableMapping

from PySide6.QtGui import QGuiApplication

FIT = "fit"
PERCENTS = ("100", "125", "150", "175", "200")
TEXT_SIZES = (FIT, *PERCENTS)
LEAST = (1280, 720)  # px that the window needs
DESIGNED = (1920, 1080)  # px that it was drawn for
FACTOR = "QT_SCALE_FACTOR"


def factor_for(text_size: str, width: float, height: float) -> float:
    """What a screen of `width` x `height` px of Qt is drawn with: 1, or what `text_size` asks for.

    "fit" grows only where the design would fill half a screen or less, which is what a 4K projector
    without scaling of its own looks like. Nothing may grow until the window is larger than the screen.
    """
    room = min(width / LEAST[0], height / LEAST[1])
    if text_size in PERCENTS:
        wanted = int(text_size) / 100
    else:
        spare = min(width / DESIGNED[0], height / DESIGNED[1])
        wanted = 2.0 if spare >= 2 else 1.5 if spare >= 1.5 else 1.0
    return max(1.0, min(wanted, room))


def apply_text_size(text_size: str, environ: MutableMapping[str, str] = os.environ) -> None:
    """Tell Qt the factor. Must come before the application is made, or it has no effect.

    No object of Qt may be in use yet: asking for the screen ends those that there are.

    Whoever has set `QT_SCALE_FACTOR` knows better. macOS scales whole screens by itself, so that there
    "fit" has nothing to do.
    """
    if FACTOR in environ or QGuiApplication.instance() is not None or text_size == "100":
        return
    if text_size == FIT and sys.platform == "darwin":
        return
    # Only an application knows the screen, and it reads the factor as it begins: this one ends at once.
    probe = QGuiApplication(sys.argv[:1])
    screen = probe.primaryScreen()
    size = None if screen is None else screen.availableGeometry().size()
    probe.shutdown()
    if size is not None:
        factor = factor_for(text_size, size.width(), size.height())
        if factor > 1:
            environ[FACTOR] = str(factor)
