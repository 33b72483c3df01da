"""Help, About and the log: small windows that say something and close with Escape."""

import platform
from collections.abc import Sequence
from importlib import metadata
from itertools import combinations_with_replacement

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QFontDatabase
from PySide6.QtWidgets import (
    QDialog,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QScrollArea,
    QSpacerItem,
    QVBoxLayout,
    QWidget,
)

from app.actions import LINE, MENUS, shown
from app.logs import log_path, tail
from app.theme import ThemeHolder, font, stylesheet
from app.widgets.controls import Button
from app.widgets.labels import make_label, titled_column
from engine import __version__

PARTS = (
    ("torch", "BSD-3-Clause"),
    ("tokenizers", "Apache-2.0"),
    ("transformers", "Apache-2.0"),
    ("PySide6-Essentials", "LGPL-3.0"),
    ("pyqtgraph", "MIT"),
    ("Pygments", "BSD-2-Clause"),
    ("numpy", "BSD-3-Clause"),
    ("gguf", "MIT"),
    ("jinja2", "BSD-3-Clause"),
    ("platformdirs", "MIT"),
)
ELSEWHERE = (
    ("In the prompt", ("Return", "Send"), ("Shift+Return", "New line"), ("Esc", "Stop the answer")),
    ("In the list of conversations", ("Return", "Open"), ("F2", "Rename"), ("Del", "Delete, pressed twice")),
    (
        "In a receipt",
        ("Left", "Request before"),
        ("Right", "Request after"),
        ("Ctrl+J", "What if it had gone elsewhere"),
        ("Esc", "Close"),
    ),
    (
        "On the axis of tokens per second",
        ("Left", "0.1 s earlier"),
        ("Right", "0.1 s later"),
        ("PgUp", "1 s earlier"),
        ("PgDown", "1 s later"),
        ("End", "Back to live"),
    ),
    (
        "In presenter mode",
        ("Space", "Start the burst"),
        ("R", "Repeat it"),
        ("C", "Compare two policies"),
        ("PgUp", "Decision before"),
        ("PgDown", "Decision after"),
        ("Esc", "Leave"),
    ),
)
COLUMNS = 3  # of the sheet of shortcuts
SHEET_MARGINS, LEAST_SHEET = QSize(80, 150), QSize(480, 320)  # px


def make_dialog(parent: QWidget, title: str) -> tuple[QDialog, QVBoxLayout]:
    dialog = QDialog(parent)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setWindowTitle(title)
    return dialog, titled_column(dialog, title)


def _words(column: QVBoxLayout, text: str, width: int, tone: str = "", size: str = "body") -> None:
    label = make_label(text, size, tone=tone)
    label.setWordWrap(True)
    label.setFixedWidth(width)
    column.addWidget(label)


def _fixed(text: str, bold: bool = False, tone: str = "") -> QLabel:
    """A label that takes no more height than its line."""
    label = make_label(text, bold=bold, tone=tone)
    label.setFixedHeight(18)
    return label


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def show_about(parent: QWidget) -> QDialog:
    dialog, column = make_dialog(parent, "Offramp")
    _words(column, f"Version {__version__}, MIT licence. When does a CPU beat waiting for the GPU? "
                   "Answered live, on your own machine.", 480)  # fmt: skip
    _words(column, "Nothing leaves this machine. The network is used only to fetch a model that you ask for; "
                   "with networking off everything else works.", 480)  # fmt: skip
    _words(column, "Where EMULATED is shown, backends only wait: their times come from a profile.", 480)
    grid = QGridLayout()
    grid.setHorizontalSpacing(24)
    grid.setVerticalSpacing(4)
    rows = [("Python", platform.python_version(), "PSF-2.0")]
    rows += [(name, version_of(name), licence) for name, licence in PARTS]
    for row, cells in enumerate(rows):
        for place, text in enumerate(cells):
            grid.addWidget(make_label(text, tone="" if place == 0 else "muted"), row, place)
    grid.setColumnStretch(2, 1)
    column.addLayout(grid)
    _words(column, "The embedded model SmolLM2-135M-Instruct is Apache-2.0. Every other model keeps the "
                   "licence that its menu entry names.", 480, "muted", "label")  # fmt: skip
    dialog.open()
    return dialog


def shortcut_groups() -> list[tuple[str, list[tuple[str, str]]]]:
    """(heading, [(keys, what they do)]) of everything that has keys."""
    out = []
    for title, group in MENUS:
        rows = [(" or ".join(shown(k) for k in e.keys), e.text) for e in group if e is not LINE and e.keys]
        if rows:
            out.append((title, rows))
    out += [(title, [(shown(k), text) for k, text in rows]) for title, *rows in ELSEWHERE]
    return out


def evenly(heights: Sequence[int], columns: int = COLUMNS) -> list[int]:
    """The column of each group, in order, so that the highest column is as low as it can be."""
    best: tuple[int, list[int]] | None = None
    for cuts in combinations_with_replacement(range(len(heights) + 1), columns - 1):
        places = [sum(index >= cut for cut in cuts) for index in range(len(heights))]
        highest = max(sum(h for h, p in zip(heights, places, strict=True) if p == c) for c in range(columns))
        if best is None or highest < best[0]:
            best = (highest, places)
    return best[1] if best is not None else []


def show_shortcuts(parent: QWidget) -> QDialog:
    dialog, column = make_dialog(parent, "Keyboard shortcuts")
    columns = QHBoxLayout()
    columns.setSpacing(48)
    grids = [QGridLayout() for _ in range(COLUMNS)]
    groups = shortcut_groups()
    places = evenly([len(rows) + 2 for _title, rows in groups])
    for (title, rows), place in zip(groups, places, strict=True):
        grid = grids[place]
        if grid.count():
            grid.addItem(QSpacerItem(1, 12), grid.rowCount(), 0)
        grid.addWidget(_fixed(title, bold=True), grid.rowCount(), 0)
        for keys, text in rows:
            row = grid.rowCount()
            grid.addWidget(_fixed(text.rstrip("…")), row, 0)
            grid.addWidget(_fixed(keys, tone="muted"), row, 1)
    for grid in grids:
        grid.setHorizontalSpacing(24)
        grid.setVerticalSpacing(5)
        grid.setRowStretch(grid.rowCount(), 1)
        columns.addLayout(grid)
    inner = QWidget()
    inner.setLayout(columns)
    columns.setContentsMargins(0, 0, 16, 0)
    area = QScrollArea()
    area.setWidgetResizable(True)
    area.setFrameShape(QScrollArea.Shape.NoFrame)
    area.setWidget(inner)
    # All of it where the window has room, and a scrolled part where it has not.
    wanted = inner.sizeHint() + QSize(16, 8)
    area.setFixedSize(wanted.boundedTo(parent.size() - SHEET_MARGINS).expandedTo(LEAST_SHEET))
    column.addWidget(area)
    dialog.open()
    return dialog


def show_log(parent: QWidget, themes: ThemeHolder) -> QDialog:
    dialog, column = make_dialog(parent, "Log")
    dialog.setStyleSheet(stylesheet(themes.current))
    path = make_label(str(log_path()), tone="muted")
    path.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    column.addWidget(path)
    view = QPlainTextEdit(tail())
    view.setReadOnly(True)
    view.setAccessibleName("Log")
    fixed = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
    fixed.setPixelSize(font("label").pixelSize())
    view.setFont(fixed)
    view.setMinimumSize(760, 360)
    column.addWidget(view)
    row = QHBoxLayout()
    row.addStretch(1)
    close = Button(themes, "Close")
    close.clicked.connect(dialog.accept)
    row.addWidget(close)
    column.addLayout(row)
    dialog.open()
    view.verticalScrollBar().setValue(view.verticalScrollBar().maximum())
    return dialog
