"""Presenter mode: the last decision, the backends, routing and TTFT, at a size for the back row.

Single keys act here and only here: Space starts the burst, R repeats it, C compares two policies, Page Up
and Page Down (clickers) step through the decisions, F5 and Escape leave.
"""

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.panels.latency import TtftPanel
from app.panels.painting import LEFT, draw_spans, draw_text, width_of, wrap_spans
from app.panels.routing import RoutingPanel
from app.panels.stage import StagePanel
from app.refresher import EVERYTHING
from app.series.board import Board, RequestRow
from app.series.decision import ARROW, Span, decide, plain
from app.theme import ThemeHolder, font
from app.widgets.controls import EmulatedMark
from app.widgets.key_hints import KeyHints
from app.widgets.marks import paint_mark
from app.widgets.panel import ElidedLabel

REASON = 48  # px for the reason, whatever its size
SCALE, FULL = 1.6, (1920, 1080)  # the scale at that size; smaller and larger windows shrink and grow it
HINTS = (
    (("Space",), "start"),
    (("R",), "repeat"),
    (("C",), "compare"),
    (("Page Up", "Page Down"), "decisions"),
    (("F5",), "leave"),
)


class Headline(QWidget):
    """The decision in the largest letters, its reason in the same size below."""

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes, self.scale, self.title_inset = themes, SCALE, 0  # px at the right that are taken
        self._title: tuple[str, str, int | None] = ("", "", None)  # text, backend's label, rank
        self._reason: tuple[Span, ...] = ()
        self._ranks: dict[str, int] = {}
        themes.changed.connect(self.update)

    def show_words(
        self, text: str, reason: tuple[Span, ...], label: str = "", rank: int | None = None,
        ranks: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        now = ((text, label, rank), reason)
        if now == (self._title, self._reason):
            return
        self._title, self._reason, self._ranks = (text, label, rank), reason, ranks or {}
        self.setAccessibleName(f"{f'{text} {label}'.strip()}. {plain(reason)}")
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, theme, s = QPainter(self), self._themes.current, self.scale
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        text, label, rank = self._title
        hero, high, x = font("hero", bold=True, scale=s), 40 * s, 0.0
        room = self.width() - self.title_inset
        pieces = [(text, theme.text)]
        if rank is not None:
            pieces.append((ARROW, theme.muted))
        for words, ink in pieces:
            wide = min(width_of(words, hero) + 1, room - x)
            draw_text(painter, QRectF(x, 0, wide, high), LEFT, words, hero, ink, elide=True)
            x += wide + 12 * s
        if rank is not None:
            paint_mark(painter, QRectF(x, high / 2 - 12 * s, 24 * s, 24 * s), rank, theme)
            x += 36 * s
            rect = QRectF(x, 0, max(1.0, room - x), high)
            draw_text(painter, rect, LEFT, label, hero, theme.backend(rank).ink, elide=True)
        for size, line in (("hero", 40), ("lead", 28), ("body", 24)):
            used = font(size, scale=s)
            lines = wrap_spans(self._reason, used, self.width())
            if len(lines) * line <= REASON:  # one line in hero, else smaller: it is never cut
                break
        y = high
        for spans in lines:
            rect = QRectF(0, y, self.width(), line * s)
            draw_spans(painter, rect, spans, used, theme, self._ranks)
            y += line * s
        painter.end()


class Presenter(QWidget):
    run_requested = Signal()
    repeat_requested = Signal()
    compare_requested = Signal()
    left = Signal()

    def __init__(self, board: Board, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.board, self.themes, self.scale = board, themes, SCALE
        self._pending = set(EVERYTHING)
        self._at: int | None = None  # the request whose decision is shown; None = the last
        self.can_start, self.preset = False, ""
        self.setObjectName("window")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Presenter mode")
        self.headline = Headline(themes, self)
        self.mark = EmulatedMark(themes, self)
        self.routing = RoutingPanel(board, themes, self, headline=False)
        self.ttft = TtftPanel(board, themes, self, numbers=False)
        self.stages: dict[str, StagePanel] = {}
        self.status = ElidedLabel("", self)
        self.status.setProperty("tone", "muted")
        self.hints = KeyHints(themes, HINTS, self)
        self._place()

    def _place(self) -> None:
        self._column = QVBoxLayout(self)
        head = QHBoxLayout()
        head.addWidget(self.headline, 1)
        self.mark.raise_()
        self._backends = QHBoxLayout()
        self._charts = QHBoxLayout()
        self._charts.addWidget(self.routing, 3)
        self._charts.addWidget(self.ttft, 2)
        foot = QHBoxLayout()
        foot.addWidget(self.status, 1)
        foot.addWidget(self.hints)
        self._empty = QLabel("The backends appear here once the engine has started.", self)
        self._empty.setProperty("tone", "muted")
        self._backends.addWidget(self._empty)
        self._column.addLayout(head)
        self._column.addLayout(self._backends, 39)
        self._column.addLayout(self._charts, 61)
        self._column.addLayout(foot)
        self._head, self._foot = head, foot
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Text keeps its share of the picture: a projector shows every size equally large."""
        share = min(self.width() / FULL[0], self.height() / FULL[1])
        s = self.scale = SCALE * max(0.5, share)
        edge, gap = round(10 * s), round(10 * s)
        self._column.setContentsMargins(edge, round(14 * s), edge, 0)
        self._column.setSpacing(gap)
        for row in (self._backends, self._charts):
            row.setSpacing(gap)
        self._head.setContentsMargins(round(8 * s), 0, round(6 * s), 0)
        self._foot.setContentsMargins(round(8 * s), 0, round(6 * s), 0)
        self.headline.scale = s
        self.headline.setFixedHeight(round((40 + REASON) * s))
        self.headline.update()
        self.mark.setFont(font("label", scale=s))
        self.mark.setFixedHeight(round(24 * s))
        for panel in (self.routing, self.ttft, *self.stages.values()):
            panel.set_scale(s)
        self.status.setFont(font("label", scale=s))
        self._empty.setFont(font("label", scale=s))
        self.hints.set_scale(s)

    def changed(self, topics: set[str]) -> None:
        self._pending |= topics

    def refresh(self, now_s: float, clock: str) -> None:
        """Once a round while this page is shown."""
        pending, self._pending = self._pending | {"clock"}, set()
        self._show_stages(pending, now_s)
        row = self._row()
        self._show_headline(row)
        self.routing.until = self._at
        self.routing.refresh(pending, now_s)
        if pending & (self.ttft.topics | {"clock"}):
            self.ttft.refresh(pending, now_s)
        model = self.board.model
        self.mark.setVisible(model is not None and model.emulated)
        if model is not None and model.emulated:
            self.mark.set_detail(model.emulation)
            self.mark.adjustSize()
            right = self.width() - round(16 * self.scale)
            self.mark.move(right - self.mark.width(), round(22 * self.scale))
            self.headline.title_inset = self.mark.width() + round(24 * self.scale)
        run = self.board.run
        text = f"{run.started.preset}, {run.started.policy}" if run else self.preset
        self.status.set_full_text(", ".join(filter(None, (text, clock))))

    def _show_stages(self, topics: set[str], now_s: float) -> None:
        order = [view.info.name for view in self.board.ranked()]
        if order != list(self.stages):
            for panel in self.stages.values():
                self._backends.removeWidget(panel)
                panel.deleteLater()
            self.stages = {name: StagePanel(self.board, self.themes, name, self) for name in order}
            for panel in self.stages.values():
                panel.set_scale(self.scale)
                self._backends.addWidget(panel, 1)
                panel.show()
            self._empty.setVisible(not order)
        for panel in self.stages.values():
            panel.refresh(topics, now_s)

    def _show_headline(self, row: RequestRow | None) -> None:
        if row is None or row.receipt is None:
            if self.board.failure:
                title = "No model is loaded" if self.board.asked else "The engine cannot run"
                self.headline.show_words(title, (Span(self.board.failure),))
            elif not self.board.ready:
                self.headline.show_words("Getting ready", (Span("Both backends load and are measured."),))
            else:
                words = f"The burst is {self.preset}." if self.preset else ""
                self.headline.show_words("Press Space to start the burst", (Span(words),))
            return
        labels, ranks = self.board.labels(), self.board.ranks()
        decision = decide(row.receipt, row.number, labels)
        reason = tuple(span for span in decision.reason if not span.muted)
        rank = ranks.get(decision.backend, 3)
        self.headline.show_words(f"Request {decision.number}", reason, decision.label, rank, ranks)

    # decisions and keys

    def _routed(self) -> list[RequestRow]:
        return [row for row in self.board.shown_rows() if row.receipt is not None]

    def _row(self) -> RequestRow | None:
        rows = self._routed()
        if self._at is not None:
            found = next((r for r in rows if r.request_id == self._at), None)
            if found is not None:
                return found
            self._at = None  # another burst has begun
        return rows[-1] if rows else None

    def step(self, by: int) -> None:
        """The decision before or after; after the last one the page follows the burst again."""
        rows = self._routed()
        if not rows:
            return
        ids = [int(r.request_id) for r in rows]
        at = ids.index(self._at) if self._at in ids else len(ids) - 1
        at = min(len(ids) - 1, max(0, at + by))
        self._at = None if at == len(ids) - 1 else ids[at]
        self._pending |= EVERYTHING

    def follow(self) -> None:
        self._at = None
        self._pending |= EVERYTHING

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = event.key()
        signals = {
            Qt.Key.Key_Space: self.run_requested,
            Qt.Key.Key_R: self.repeat_requested,
            Qt.Key.Key_C: self.compare_requested,
            Qt.Key.Key_Escape: self.left,
        }
        plain_key = event.modifiers() in (Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.KeypadModifier)
        if not plain_key:
            super().keyPressEvent(event)
        elif key in signals:
            if key in (Qt.Key.Key_Space, Qt.Key.Key_R):
                self.follow()
            signals[key].emit()
        elif key in (Qt.Key.Key_PageUp, Qt.Key.Key_Left):
            self.step(-1)
        elif key in (Qt.Key.Key_PageDown, Qt.Key.Key_Right):
            self.step(1)
        else:
            super().keyPressEvent(event)

    def sizeHint(self) -> QSize:
        return QSize(*FULL)
