"""The style sheet with `@token;` where a colour of the theme goes. `theme.stylesheet` fills it in."""

TEMPLATE = """
QMainWindow, QDialog, QWidget#window { background: @window; }
QLabel, QCheckBox, QRadioButton { color: @text; background: transparent; }
QLabel[tone="muted"] { color: @muted; }
QLabel[tone="disabled"] { color: @disabled; }
QLabel[tone="error"] { color: @error; }
QLabel[tone="warning"] { color: @warning; }
QLabel[tone="success"] { color: @success; }
QLabel[tone="emulated"] { color: @emulated; }
QLabel#emulated { color: @emulated; padding: 0 8px; }
QFrame#panel { background: @panel; border: 1px solid; border-color: @line; border-radius: 8px; }
QFrame#card { background: @panel; border: 1px solid; border-color: @strong; border-radius: 8px; }
QFrame#sheet { background: @raised; border: 1px solid; border-color: @strong; }
QFrame#popover { background: @raised; border: 1px solid; border-color: @strong; border-radius: 8px; }
QFrame#separator { background: @line; border: none; }
QFrame#composer { background: @window; border: 1px solid; border-color: @strong; border-radius: 6px; }
QToolTip { background: @raised; color: @text; border: 1px solid; border-color: @strong; padding: 6px 8px; }
QSplitter::handle { background: transparent; }
QPushButton, QToolButton { color: @text; background: @control; border: 1px solid; border-color: @border;
  border-radius: 6px; padding: 0 12px; min-height: 30px; }
QPushButton:hover, QToolButton:hover { background: @hover; border-color: @hover; }
QPushButton:pressed, QToolButton:pressed { background: @pressed; border-color: @pressed; }
QPushButton:disabled, QToolButton:disabled {
  color: @disabled; background: transparent; border-color: @line; }
QFrame#popover QPushButton[kind="plain"]:enabled, QFrame#sheet QPushButton[kind="plain"]:enabled {
  border-color: @edge; }
QPushButton[kind="primary"] { color: @on_inverse; background: @inverse; border-color: @inverse; }
QPushButton[kind="primary"]:hover { background: @muted; border-color: @muted; }
QPushButton[kind="primary"]:disabled { color: @disabled; background: transparent; border-color: @line; }
QPushButton[kind="danger"] { color: @error; background: transparent; border-color: @error; }
QPushButton[kind="danger"]:hover { background: @hover; border-color: @error; }
QPushButton[kind="danger"]:pressed { background: @pressed; }
QPushButton[kind="danger"]:disabled { color: @disabled; border-color: @line; }
QPushButton[kind="ghost"], QToolButton[kind="ghost"] {
  color: @muted; background: transparent; border-color: transparent; padding: 0 7px; }
QPushButton[kind="ghost"]:hover, QToolButton[kind="ghost"]:hover {
  color: @text; background: @hover; border-color: @hover; }
QPushButton[kind="ghost"]:pressed, QToolButton[kind="ghost"]:pressed { color: @text; background: @pressed; }
QPushButton[kind="ghost"]:disabled, QToolButton[kind="ghost"]:disabled { color: @disabled; }
QPushButton[kind="quiet"] {
  color: @muted; background: transparent; border: none; padding: 0 1px; min-height: 22px; }
QPushButton[kind="quiet"]:hover { color: @text; }
QToolButton::menu-indicator, QPushButton::menu-indicator { image: none; width: 0; }
QLineEdit, QSpinBox, QDoubleSpinBox {
  color: @text; background: @window; border: 1px solid; border-color: @strong;
  border-radius: 6px; padding: 0 8px; min-height: 28px; selection-background-color: @pressed;
  selection-color: @text; }
QLineEdit:disabled, QSpinBox:disabled { color: @disabled; border-color: @line; }
QAbstractSpinBox QLineEdit { border: none; min-height: 0; padding: 0 8px; background: transparent; }
QAbstractSpinBox::up-button, QAbstractSpinBox::down-button { width: 0; border: none; }
QListWidget { color: @text; background: @window; border: 1px solid; border-color: @line;
  border-radius: 6px; outline: none; }
QPlainTextEdit, QTextEdit, QTextBrowser { color: @text; background: transparent; border: none;
  selection-background-color: @pressed; selection-color: @text; }
QComboBox QAbstractItemView, QMenu {
  color: @text; background: @raised; border: 1px solid; border-color: @strong; padding: 4px;
  outline: none; selection-background-color: @hover; selection-color: @text; }
QComboBox QAbstractItemView::item { min-height: 28px; padding: 0 8px; }
QMenu::item { padding: 6px 24px 6px 12px; border-radius: 4px; }
QMenu::item:selected { background: @hover; }
QMenu::item:disabled { color: @disabled; }
QMenu::separator { height: 1px; background: @line; margin: 4px 8px; }
QMenu::icon { width: 0; }
QTableView {
  color: @text; background: transparent; border: none; gridline-color: transparent; outline: none;
  selection-background-color: @hover; selection-color: @text; }
QTableView::item:selected { background: @hover; color: @text; }
QHeaderView, QHeaderView::section { color: @muted; background: transparent; border: none; }
QTableCornerButton::section { background: transparent; border: none; }
QTabBar::tab { color: @muted; background: transparent; border: none; padding: 6px 12px; }
QTabBar::tab:selected { color: @text; background: @control; border-radius: 6px; }
QScrollArea, QScrollArea > QWidget > QWidget { background: transparent; border: none; }
QAbstractScrollArea::corner { background: transparent; border: none; }
QScrollBar { background: transparent; border: none; margin: 0; }
QScrollBar:vertical { width: 10px; }
QScrollBar:horizontal { height: 10px; }
QScrollBar::handle { background: @strong; border-radius: 3px; margin: 2px; }
QScrollBar::handle:vertical { min-height: 24px; }
QScrollBar::handle:horizontal { min-width: 24px; }
QScrollBar::handle:hover { background: @disabled; }
QScrollBar::add-line, QScrollBar::sub-line, QScrollBar::add-page, QScrollBar::sub-page {
  width: 0; height: 0; background: none; border: none; }
"""
