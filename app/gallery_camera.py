"""Makes windows, lets them come to a moment, and saves pictures of them."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QWidget

from app.bridge import Bridge
from app.main_window import MainWindow
from app.preferences import Preferences
from app.series.board import Board
from app.session import Session
from app.settings import Settings
from app.theme import ThemeHolder
from engine.cli import window_parser
from engine.events import Event

THEMES = ("dark", "light")
PATIENCE_S = 180.0


def wait(ms: int) -> None:
    """Let the event loop run."""
    loop = QEventLoop()
    QTimer.singleShot(ms, loop.quit)
    loop.exec()


def wait_until(done: Callable[[], bool]) -> None:
    """Raises `TimeoutError`: a picture of another moment than the one it is named after would be a lie."""
    end_s = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > end_s:
            raise TimeoutError(f"what is to be pictured had not come after {PATIENCE_S:.0f} s")
        wait(10)


class Camera:
    """`saved` lists the files of `folder`; `scratch` holds what the windows keep.

    `sizes` are pixels of the pictures; the window is `scale` times smaller, as Qt draws it that much larger.
    """

    def __init__(
        self, folder: Path, sizes: Sequence[tuple[int, int]], scratch: Path, scale: float = 1.0
    ) -> None:
        self.folder, self.sizes, self._scratch, self.scale = folder, sizes, scratch, scale
        self.saved: list[Path] = []
        self._windows: list[MainWindow] = []

    def window(self, *options: str) -> MainWindow:
        folder = self._scratch / str(len(self._windows))
        folder.mkdir()
        board = Board()
        bridge = Bridge(board)
        args = window_parser().parse_args(list(options))
        session = Session(bridge, args, Preferences(folder / "settings.json"))
        window = MainWindow(board, ThemeHolder("dark"), bridge, Settings(folder / "s.ini"), session)
        self._windows.append(window)
        window.setMinimumSize(320, 240)
        self._resize(window, self.sizes[0])
        window.show()
        wait(300)
        return window

    def _resize(self, window: MainWindow, size: tuple[int, int]) -> None:
        window.resize(*(round(side / self.scale) for side in size))

    def close(self) -> None:
        for window in self._windows:
            window.close()

    def tell(self, window: MainWindow, *events: Event) -> None:
        window.bridge.changed.emit(window.board.apply(list(events)))
        window.tick()

    def take(self, window: MainWindow, name: str, part: Callable[[], QWidget] | None = None) -> None:
        """`name` in both schemes and every size; `part` cuts one panel out, at the middle size only."""
        sizes = self.sizes if part is None else self.sizes[len(self.sizes) // 2 :][:1]
        for theme in THEMES:
            window.themes.set_mode(theme)
            for width, height in sizes:
                self._resize(window, (width, height))
                window.tick()
                wait(60)
                window.tick()
                # A toast is news, and no part of the state that is pictured.
                window.toast.hide()
                widget = window if part is None else part()
                path = self.folder / f"{name}-{theme}-{width}x{height}.png"
                if not widget.grab().save(str(path), "PNG"):
                    raise OSError(f"{path} could not be written")
                self.saved.append(path)

    def shots(self, window: MainWindow, name: str, show: Callable[[], QWidget | None]) -> None:
        """A window of its own that `show` opens, in both schemes. Raises `RuntimeError` if there is none."""
        for theme in THEMES:
            window.set_theme(theme)
            opened = show()
            if opened is None:
                raise RuntimeError(f"{name} cannot be opened now")
            wait(60)
            # The models sheet reads headers before it has rows.
            wait_until(lambda opened=opened: bool(getattr(opened, "rows", True)))
            wait(60)
            path = self.folder / f"{name}-{theme}{'' if self.scale == 1 else f'@{self.scale:g}x'}.png"
            opened.grab().save(str(path), "PNG")
            self.saved.append(path)
            opened.close()
