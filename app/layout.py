"""Where the panels are: nested splitters, with sizes by the window's size until somebody drags one."""

from PySide6.QtCore import QByteArray, QSize, Qt
from PySide6.QtWidgets import QSplitter, QWidget

GUTTER = 8
NARROW = 1500  # below: a narrow prompt over the whole height, the requests beside it
PROMPT, PROMPT_NARROW = 384, 312
PROMPT_SHARE, PROMPT_MOST = 0.2, 640  # of a large window; a longer line of text is hard to read
REQUESTS, REQUESTS_LOW, LOW = 264, 168, 900 - 72  # four table rows below a window of 900 px


def _eights(value: float) -> int:
    return round(value / 8) * 8


def default_sizes(size: QSize) -> dict[str, list[int]]:
    """Sizes per splitter for an area of `size`: at 1904 x 1008 those of the design."""
    width, height = size.width(), size.height()
    narrow = width + 2 * GUTTER < NARROW
    prompt = PROMPT_NARROW if narrow else max(PROMPT, min(PROMPT_MOST, _eights(width * PROMPT_SHARE)))
    right = width - prompt - GUTTER
    half = (right - GUTTER) // 2
    rest = right - half - 2 * GUTTER
    ttft = min(rest, _eights(rest / 2 + 3))
    requests = REQUESTS_LOW if height < LOW else max(REQUESTS, _eights(height * 0.262))
    upper = height - requests - GUTTER
    backends = max(240, min(_eights(upper * 0.492), max(360, _eights(upper * 0.4))))
    if height < LOW:
        backends = max(256, _eights(upper * 0.55))
    charts = upper - backends - GUTTER
    return {
        "root": [height] if narrow else [upper, requests],
        "upper": [prompt, right],
        "right": [backends, charts, requests] if narrow else [backends, charts],
        "charts": [half, ttft, rest - ttft],
    }


class PanelLayout:
    """Owns the splitters. `root` is the widget to place."""

    def __init__(
        self, prompt: QWidget, backends: QWidget, charts: tuple[QWidget, ...], requests: QWidget
    ) -> None:
        self._requests = requests
        self.splitters = {
            "root": QSplitter(Qt.Orientation.Vertical),
            "upper": QSplitter(Qt.Orientation.Horizontal),
            "right": QSplitter(Qt.Orientation.Vertical),
            "charts": QSplitter(Qt.Orientation.Horizontal),
        }
        self._dragged: dict[str, set[str]] = {"wide": set(), "narrow": set()}
        self._saved: dict[str, dict[str, QByteArray]] = {"wide": {}, "narrow": {}}
        self.mode = "wide"
        for name, splitter in self.splitters.items():
            splitter.setHandleWidth(GUTTER)
            splitter.setChildrenCollapsible(False)
            splitter.splitterMoved.connect(lambda _p, _i, name=name: self._dragged[self.mode].add(name))
        for chart in charts:
            self.splitters["charts"].addWidget(chart)
        self.splitters["right"].addWidget(backends)
        self.splitters["right"].addWidget(self.splitters["charts"])
        self.splitters["upper"].addWidget(prompt)
        self.splitters["upper"].addWidget(self.splitters["right"])
        self.root = self.splitters["root"]
        self.root.addWidget(self.splitters["upper"])
        self.root.addWidget(requests)

    def fit(self, size: QSize) -> None:
        """The window has another size: change the form if need be, resize what nobody dragged."""
        mode = "narrow" if size.width() + 2 * GUTTER < NARROW else "wide"
        if mode != self.mode:
            self._keep()
            self.mode = mode
            self.splitters["right" if mode == "narrow" else "root"].addWidget(self._requests)
            self._requests.show()
            for name, state in self._saved[mode].items():
                self.splitters[name].restoreState(state)
        for name, sizes in default_sizes(size).items():
            if name not in self._dragged[mode]:
                self.splitters[name].setSizes(sizes)

    def reset(self) -> None:
        """Forget what was dragged, in both forms."""
        for mode in self._dragged:
            self._dragged[mode].clear()
            self._saved[mode].clear()

    def _keep(self) -> None:
        for name in self._dragged[self.mode]:
            self._saved[self.mode][name] = self.splitters[name].saveState()

    def states(self) -> dict[str, QByteArray]:
        """What was dragged, by "mode/splitter", to be saved."""
        self._keep()
        return {f"{m}/{n}": state for m, saved in self._saved.items() for n, state in saved.items()}

    def all_keys(self) -> list[str]:
        return [f"{mode}/{name}" for mode in self._saved for name in self.splitters]

    def restore(self, key: str, state: QByteArray) -> None:
        mode, _, name = key.partition("/")
        if mode == self.mode and not self.splitters[name].restoreState(state):
            return
        self._saved[mode][name] = state
        self._dragged[mode].add(name)
