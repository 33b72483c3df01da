"""The routing panel: the last decision in large letters, its reason, and the chart of all scores."""

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QPushButton, QWidget

from app.panels.painting import LEFT, RIGHT, draw_spans, draw_text, width_of, wrap_spans
from app.panels.score_chart import ScoreChart
from app.panels.score_plot import Picture
from app.series.arrivals import arrivals, scores
from app.series.board import Board, RequestRow
from app.series.decision import ARROW, Decision, Span, decide, estimate_words, meanings, plain
from app.series.words import figure
from app.theme import Size, ThemeHolder, font
from app.widgets.marks import paint_mark
from app.widgets.panel import PADDING, Panel

LOW_PX = 300  # a panel lower than this gives the chart the room of the large letters


class DecisionLine(QWidget):
    """ "Request 8 → CPU" and why, painted so that every figure has its backend's colour."""

    clicked = Signal()

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.themes, self.scale, self.compact = themes, 1.0, False
        self.decision: Decision | None = None
        self.ranks: dict[str, int] = {}
        self.estimate: tuple[str, ...] = ()  # how long the reply should be, in ever fewer words
        self.button = QPushButton("Receipt", self)
        self.button.setFont(font("label", bold=True))
        self.button.setAccessibleName("Receipt of the last decision")
        self.button.clicked.connect(self.clicked)
        self._fit()

    def show_decision(
        self, decision: Decision | None, ranks: dict[str, int], estimate: tuple[str, ...] = ()
    ) -> None:
        if (decision, ranks, estimate) == (self.decision, self.ranks, self.estimate):
            return
        self.decision, self.ranks, self.estimate = decision, ranks, estimate
        self.setVisible(decision is not None)
        if decision is not None:
            self.setToolTip(estimate[0] if estimate else "")
            parts = (decision.headline, plain(decision.reason).rstrip("."), *estimate[:1])
            self.setAccessibleName(". ".join(parts) + ".")
        self._fit()
        self.update()

    def set_form(self, scale: float, compact: bool) -> None:
        self.scale, self.compact = scale, compact
        self._fit()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(400, 64)

    def _hero(self) -> tuple[Size, float]:
        return ("lead", 32 * self.scale) if self.compact else ("hero", 40 * self.scale)

    def _reason(self) -> tuple[Size, float]:
        return ("label", 20 * self.scale) if self.compact else ("body", 24 * self.scale)

    def _reason_lines(self) -> list[list[Span]]:
        """The sentence, wrapped; where the panel is low, without the margin on a line of its own."""
        width = max(50.0, self.width() - 2 * PADDING)
        spans = self.decision.reason if self.decision else ()
        lines = wrap_spans(spans, font(self._reason()[0], scale=self.scale), width)[:3]
        if self.compact and len(lines) > 1 and all(span.muted for span in lines[-1]):
            lines.pop()
        return lines

    def _fit(self) -> None:
        """As high as the sentence needs at this width: a reason is wrapped, never cut."""
        high = self._hero()[1]
        self.setFixedHeight(round(high + self._reason()[1] * max(1, len(self._reason_lines()))))
        size = self.button.sizeHint()
        button_high = min(32, round(high))
        self.button.setGeometry(
            self.width() - PADDING - size.width(), round((high - button_high) / 2), size.width(), button_high
        )

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self.clicked.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.decision is None:
            return
        painter, theme, s = QPainter(self), self.themes.current, self.scale
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        size, high = self._hero()
        used = font(size, bold=True, scale=s)
        ink = theme.backend(self.ranks.get(self.decision.backend, 3)).ink
        right = self.button.x() - 12
        x = float(PADDING)
        gap = (12 if not self.compact else 8) * s
        side = (24 if not self.compact else 16) * s
        pieces = ((f"Request {self.decision.number}", theme.text), (ARROW, theme.muted), ("", None))
        for text, colour in (*pieces, (self.decision.label, ink)):
            if colour is None:
                rank = self.ranks.get(self.decision.backend, 3)
                paint_mark(painter, QRectF(x, (high - side) / 2, side, side), rank, theme)
                x += side + gap
                continue
            wide = width_of(text, used) + 1
            rect = QRectF(x, 0, max(1.0, min(wide, right - x)), high)
            draw_text(painter, rect, LEFT, text, used, colour, elide=wide > rect.width())
            x += wide + gap
        label = font("label", scale=s)
        for words in self.estimate:
            if x + 16 * s + width_of(words, label) <= right:
                draw_text(painter, QRectF(x, 0, right - x, high), RIGHT, words, label, theme.muted)
                break
        reason, line = self._reason()
        for row, spans in enumerate(self._reason_lines()):
            rect = QRectF(PADDING, high + row * line, self.width() - 2 * PADDING, line)
            draw_spans(painter, rect, spans, font(reason, scale=s), theme, self.ranks)
        painter.end()


class RoutingPanel(Panel):
    """Which backend the last request went to and why; a click on anything opens a receipt."""

    topics = frozenset({"routing", "requests", "backends", "run"})
    receipt_requested = Signal(int)  # request id

    def __init__(
        self, board: Board, themes: ThemeHolder, parent: QWidget | None = None, headline: bool = True
    ) -> None:
        super().__init__(board, themes, parent)
        self._headline = headline  # presenter mode has its own
        self.until: int | None = None  # request id: show nothing that came after it
        self.add_title("Routing")
        self.decision_line = DecisionLine(themes, self)
        self.decision_line.hide()
        self.chart = ScoreChart(themes, self)
        self.body.addWidget(self.decision_line)
        self.body.addWidget(self.chart, 1)
        self.decision_line.clicked.connect(self._ask_last)
        self.chart.clicked.connect(self.receipt_requested)
        self.setAccessibleName("Routing")

    def set_scale(self, scale: float) -> None:
        """Presenter mode paints the same at 1.6 times the size."""
        self.chart.scale = scale
        self.scale_title(scale)
        self.decision_line.set_form(scale, self.decision_line.compact)
        self.chart.redraw()

    def theme_changed(self) -> None:
        super().theme_changed()
        self.chart.redraw()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        compact = self.height() < LOW_PX
        if compact != self.decision_line.compact:
            self.decision_line.set_form(self.chart.scale, compact)

    def refresh(self, topics: set[str], now_s: float) -> None:
        rows = self.board.shown_rows()
        points = arrivals(rows)
        at = next((i for i, p in enumerate(points) if p.request_id == self.until), len(points) - 1)
        points = points[: at + 1]
        labels, ranks = self.board.labels(), self.board.ranks()
        run = self.board.run if points and rows[-1].run_id is not None else None
        self.chart.show_picture(
            Picture(
                tuple(points),
                labels,
                ranks,
                run.started.run_id if run else None,
                run.started.count if run else 0,
                _spacing_ms(run.started.offsets_s) if run else None,
                bool(run and run.done),
            )
        )
        row = self._last_row()
        decision = decide(row.receipt, row.number, labels) if row and row.receipt else None
        self.decision_line.show_decision(decision if self._headline else None, ranks, self._estimate(row))
        last = points[-1].receipt if points else None
        self.phrase_label.set_full_text(*(meanings(last) if last else ("",)))
        self.chart.setAccessibleDescription(self.summary())

    def _estimate(self, row: RequestRow | None) -> tuple[str, ...]:
        """How long the last reply is believed to be, and how far such beliefs have been off."""
        receipt = row.receipt if row else None
        chosen = receipt.candidate(receipt.chosen) if receipt else None
        if chosen is None:
            return ()
        view = self.board.backends.get(chosen.backend)
        price = view.price if view is not None else None
        return estimate_words(chosen.own_decode_tokens, price.length_error if price is not None else None)

    def summary(self) -> str:
        """The panel in one line, for screen readers."""
        row = self._last_row()
        if row is None or row.receipt is None:
            return "Routing: no request has been routed yet."
        labels = self.board.labels()
        decision = decide(row.receipt, row.number, labels)
        known = ", ".join(f"{labels.get(n, n)} {figure(v, 3)}" for n, v in scores(row.receipt).items())
        counts: dict[str, int] = {}
        for shown in self.board.shown_rows():
            if shown.backend is not None:
                counts[shown.backend] = counts.get(shown.backend, 0) + 1
        went = ", ".join(f"{figure(n)} to the {labels.get(b, b)}" for b, n in counts.items())
        return f"{decision.headline}. Scores: {known or 'n/a'}. So far {went}."

    def _last_row(self) -> RequestRow | None:
        last = self.board.last_receipt
        return self.board.requests.get(last.request_id) if last else None

    def _ask_last(self) -> None:
        row = self._last_row()
        if row is not None:
            self.receipt_requested.emit(int(row.request_id))

    def keyPressEvent(self, event) -> None:  # Enter on the panel = the Receipt button
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._ask_last()
        else:
            super().keyPressEvent(event)


def _spacing_ms(offsets_s: tuple[float, ...]) -> float | None:
    """The time between arrivals, if it is the same for all."""
    gaps = [b - a for a, b in zip(offsets_s, offsets_s[1:], strict=False)]
    if not gaps or gaps[0] <= 0 or max(gaps) - min(gaps) > 1e-6:
        return None
    return gaps[0] * 1000
