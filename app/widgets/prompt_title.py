"""The title row of the prompt panel with its buttons, and the small windows they open."""

import re
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QFileDialog, QFrame, QHBoxLayout, QMenu, QPlainTextEdit, QWidget

from app.theme import font
from app.widgets.controls import Button
from app.widgets.labels import make_label, make_separator
from app.widgets.panel import PADDING, Panel
from app.widgets.popover import Popover

WIDE = 360  # of the panel: "System prompt" as words, else the icon alone
LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
KINDS = {"markdown": ("Markdown (*.md)", "md"), "json": ("JSON (*.json)", "json")}
MORE = (
    ("copy", "Copy the last reply"),
    ("regenerate", "Regenerate the last reply"),
    ("edit", "Edit the last prompt"),
    ("", ""),
    ("duplicate", "Duplicate the conversation"),
    ("markdown", "Export as Markdown…"),
    ("json", "Export as JSON…"),
)


class PromptTitle(QObject):
    chosen = Signal(str)

    def __init__(self, panel: Panel) -> None:
        super().__init__(panel)
        self._panel, self._others, self._phrase = panel, 0, ""
        themes = panel.themes
        row = panel.add_title("Getting ready", height=47, top=0)
        row.setSpacing(0)
        row.insertSpacing(1, 8)
        self.system_button = Button(
            themes, "System prompt", kind="ghost", icon_name="sliders", tip="What the model is told first"
        )
        self.list_button = Button(
            themes, kind="ghost", icon_name="chats", name="Conversations", tip="Conversations (Ctrl+O)"
        )
        self.new_button = Button(
            themes, kind="ghost", icon_name="plus", name="New conversation", tip="New conversation (Ctrl+N)"
        )
        self.more_button = Button(themes, kind="ghost", icon_name="more", name="More about this conversation")
        menu = QMenu(panel)
        menu.setFont(font("label"))
        for name, words in MORE:
            if name:
                menu.addAction(words).triggered.connect(lambda _=False, name=name: self.chosen.emit(name))
            else:
                menu.addSeparator()
        self.more_button.setMenu(menu)
        for button, name in (
            (self.system_button, "system"),
            (self.list_button, "list"),
            (self.new_button, "new"),
        ):
            button.clicked.connect(lambda _=False, name=name: self.chosen.emit(name))
        self._buttons = (self.system_button, self.list_button, self.new_button, self.more_button)
        for button in self._buttons:
            row.addWidget(button)
        panel.body.addWidget(make_separator())

    def show_others(self, running: int) -> None:
        """How many replies stream into conversations that are not shown."""
        self._others = running
        self._show_phrase()

    def _show_phrase(self) -> None:
        count, label = self._others, self._panel.phrase_label
        if self._phrase or not count:
            label.set_full_text(self._phrase)
        else:
            label.set_full_text(
                f"{count} more {'runs' if count == 1 else 'run'}", f"{count} more", f"+{count}"
            )
        label.setAlignment(RIGHT if self._phrase else LEFT)

    def show_state(self, words: str, ready: bool, phrase: str) -> None:
        self._panel.title_label.setText(words)
        self._phrase = phrase
        self._show_phrase()
        for button in self._buttons:
            button.setVisible(ready)
        self._panel.title_row.setContentsMargins(PADDING, 0, 8 if ready else PADDING, 0)
        self.fit()

    def fit(self) -> None:
        """The panel has another width."""
        wide = self._panel.width() >= WIDE
        text = "System prompt" if wide else ""
        if self.system_button.text() != text:
            self.system_button.setText(text)
            self.system_button.setAccessibleName("System prompt")
            self.system_button.setFixedWidth(
                self.system_button.sizeHint().width() if wide else self.list_button.width()
            )


def edit_system(parent: Panel, anchor: QWidget, text: str, changed: Callable[[str], None]) -> Popover:
    popover = Popover(parent.themes, parent)
    editor = QPlainTextEdit(text)
    editor.setFont(font("body"))
    editor.setAccessibleName("System prompt")
    editor.setPlaceholderText("Nothing: the model answers as it was trained.")
    editor.setFixedSize(320, 144)
    editor.setTabChangesFocus(True)
    editor.textChanged.connect(lambda: changed(editor.toPlainText()))
    frame = QFrame()
    frame.setObjectName("composer")
    inside = QHBoxLayout(frame)
    inside.setContentsMargins(12, 8, 4, 8)
    inside.addWidget(editor)
    popover.body.addWidget(make_label("System prompt", bold=True))
    popover.body.addWidget(frame)
    popover.body.addWidget(make_label("Counts from the next message on.", tone="muted"))
    popover.closed.connect(popover.deleteLater)
    popover.open_at(anchor)
    editor.setFocus()
    return popover


def file_name(title: str, suffix: str) -> str:
    """A name that every file system takes, from the title of a conversation."""
    words = re.sub(r"[^\w -]+", "", title).strip(" .-")[:60].rstrip()
    return f"{words or 'conversation'}.{suffix}"


def ask_export(
    parent: QWidget, kind: str, title: str, text: str, failed: Callable[[str], object]
) -> QFileDialog:
    filters, suffix = KINDS[kind]
    dialog = QFileDialog(parent, "Export the conversation", file_name(title, suffix), filters)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setDefaultSuffix(suffix)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)

    def save(path: str) -> None:
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            failed(f"The conversation was not exported: {error.strerror}. Choose another folder.")

    dialog.fileSelected.connect(save)
    dialog.open()
    return dialog
