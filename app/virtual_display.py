"""A screen that nobody sees, for measuring and for smoke tests: Xvfb where it works, else Qt's offscreen."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_SIZE = "1920x1080x24"
_START_S = 10.0
_TRY = "from PySide6.QtWidgets import QApplication; QApplication([])"


@dataclass(frozen=True, slots=True)
class Screen:
    """`name` is "xvfb" or "offscreen"; `variables` lead a child process there; `why` no Xvfb is used."""

    name: str
    variables: dict[str, str] = field(default_factory=dict)
    why: str = ""


def offscreen(why: str) -> Screen:
    return Screen("offscreen", {"QT_QPA_PLATFORM": "offscreen"}, why)


@contextmanager
def unseen_screen() -> Iterator[Screen]:
    """The best unseen screen of this machine, ended with the block."""
    program = shutil.which("Xvfb")
    if program is None:
        yield offscreen("Xvfb is not installed")
        return
    reader, writer = os.pipe()
    server = subprocess.Popen(
        [program, "-displayfd", str(writer), "-screen", "0", _SIZE, "-nolisten", "tcp"],
        pass_fds=(writer,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(writer)
    try:
        with os.fdopen(reader) as pipe:
            number = pipe.readline().strip()  # "" when it has ended instead
        screen = Screen("xvfb", {"DISPLAY": f":{number}", "QT_QPA_PLATFORM": "xcb"})
        yield screen if number and _qt_opens(screen) else offscreen("Qt cannot open a window on Xvfb here")
    finally:
        server.terminate()
        server.wait(_START_S)


def _qt_opens(screen: Screen) -> bool:
    """Qt needs more system libraries for X than for offscreen, and aborts without them."""
    done = subprocess.run(
        [sys.executable, "-c", _TRY], env={**os.environ, **screen.variables}, capture_output=True, check=False
    )
    return done.returncode == 0
