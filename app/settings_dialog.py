"""Settings on three pages: the window, the backends, and what the default policy weighs."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QDialog, QHBoxLayout, QStackedWidget, QTabBar, QVBoxLayout, QWidget

from app.session import Session
from app.settings_backends import BackendsPage
from app.settings_weights import WeightsPage
from app.settings_window import WindowPage
from app.theme import ThemeHolder, font, stylesheet
from app.widgets.controls import Button
from app.widgets.labels import make_label

PAGES = ("Window", "Backends", "Policy")
WINDOW, BACKENDS, POLICY = range(3)


class SettingsDialog(QDialog):
    """`reload_requested` carries the options that differ from those of the running engine, `limits_chosen`
    the same where its backends can take them as they run, `weights_chosen` the weights of the policy."""

    reload_requested = Signal(object)
    limits_chosen = Signal(object)
    weights_chosen = Signal(object)
    theme_chosen = Signal(str)
    text_size_chosen = Signal(str)

    def __init__(
        self, session: Session, themes: ThemeHolder, text_size: str, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._session, self._themes = session, themes
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Settings")
        self.setStyleSheet(stylesheet(themes.current))
        themes.changed.connect(self._restyle)
        column = QVBoxLayout(self)
        column.setContentsMargins(32, 24, 32, 24)
        column.setSpacing(16)
        self.backends = BackendsPage(session, themes)
        self.window_page = WindowPage(themes, text_size)
        self.weights = WeightsPage(themes, session.weights())
        self.pages = QStackedWidget()
        for page in (self.window_page, self.backends, self.weights):
            self.pages.addWidget(page)
        column.addLayout(self._head())
        column.addWidget(self.pages, 1)
        column.addLayout(self._buttons())
        self.window_page.theme_chosen.connect(self.theme_chosen)
        self.window_page.text_size_chosen.connect(self.text_size_chosen)
        self.weights.changed.connect(self.weights_chosen)
        self.backends.looked.connect(self._look)
        self.tabs.currentChanged.connect(self._turn)
        self._turn(WINDOW)

    def _restyle(self) -> None:
        self.setStyleSheet(stylesheet(self._themes.current))

    def _head(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(24)
        row.addWidget(make_label("Settings", "lead", bold=True))
        self.tabs = QTabBar()
        self.tabs.setDrawBase(False)
        self.tabs.setFont(font("label", bold=True))
        self.tabs.setAccessibleName("Pages of the settings")
        for name in PAGES:
            self.tabs.addTab(name)
        row.addWidget(self.tabs)
        row.addStretch(1)
        return row

    def _buttons(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)
        self.defaults_button = Button(self._themes, "Defaults", kind="ghost")
        self.defaults_button.clicked.connect(self._defaults)
        self.close_button = Button(self._themes, "Close")
        self.close_button.clicked.connect(self.accept)
        self.reload_button = Button(self._themes, "Reload", kind="primary", icon_name="restart")
        self.reload_button.clicked.connect(self._apply)
        for button in (self.defaults_button, self.close_button):
            button.setAutoDefault(False)  # Return in a field is no wish for the defaults
        self.reload_button.setDefault(True)
        row.addWidget(self.defaults_button)
        row.addStretch(1)
        row.addWidget(self.close_button)
        row.addWidget(self.reload_button)
        return row

    def _turn(self, page: int) -> None:
        self.pages.setCurrentIndex(page)
        self.defaults_button.setVisible(page != WINDOW)
        self.reload_button.setVisible(page == BACKENDS)
        self._look()

    def _look(self) -> None:
        """What the button would do about the backends."""
        live, changes = self.backends.live(), self.backends.changes()
        words, icon = ("Apply", "check") if live else ("Reload", "restart")
        self.reload_button.setText(words)
        self.reload_button.setAccessibleName(words)
        self.reload_button.set_icon(icon)
        self.reload_button.setEnabled(bool(changes) and not self.backends.problem())

    def _defaults(self) -> None:
        page = self.pages.currentWidget()
        if isinstance(page, BackendsPage | WeightsPage):
            page.use_defaults()

    def _apply(self) -> None:
        changes, live = self.backends.changes(), self.backends.live()
        if self._session.save(changes):
            (self.limits_chosen if live else self.reload_requested).emit(changes)
            self.backends.look()
