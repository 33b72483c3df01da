"""Tokens per second per backend over time, and the axis on which one looks back."""

import numpy as np
from PySide6.QtCore import QRect, QRectF, Qt, Signal
from PySide6.QtGui import QPainter, QPolygonF, QResizeEvent
from PySide6.QtWidgets import QWidget

from app.panels.chart_panel import ChartPanel, ghost_axis
from app.panels.painting import draw_sentence, ghost_height, hair, half
from app.panels.plot import Piece
from app.panels.rate_plot import RatePlot
from app.series.board import BackendView, Board
from app.series.throughput import BIN_S
from app.series.words import figure, seconds
from app.theme import Theme, ThemeHolder
from app.widgets.controls import Button
from app.widgets.panel import PADDING
from app.widgets.time_slider import HANDLE, TimeSlider
from app.widgets.time_slider import HEIGHT as SLIDER

RATE_BINS = 5  # the number beside the chart: the mean of the last half second
EMPTY_RATE = "Both backends, stacked, over the last minute. It moves while tokens come out."


class ThroughputPanel(ChartPanel):
    """Tokens per second, the backends on top of each other. Its x axis is where one looks back in time.

    `moment_chosen` carries engine seconds, None = now.
    """

    title = "Tokens per second"
    moment_chosen = Signal(object)

    def __init__(self, board: Board, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        self.slider: TimeSlider | None = None  # asked for while the base class is being made
        super().__init__(board, themes, RatePlot(themes), parent)
        self.moment_s: float | None = None  # engine seconds, None = now
        self._now_s = 0.0
        self.slider = TimeSlider(themes, self)
        self.live_button = Button(
            themes, "Live", name="Back to live", tip="Show what happens now", parent=self
        )
        self.slider.hide()
        self.live_button.hide()
        self.slider.moved.connect(self._slid)
        self.slider.left.connect(lambda: self.moment_chosen.emit(None))
        self.plot.picked.connect(lambda at: self._slid(round(at * 1000)))
        self.live_button.clicked.connect(lambda: self.moment_chosen.emit(None))

    def show_moment(self, moment_s: float | None, now_s: float) -> None:
        """Draw the cursor at `moment_s`, or follow the burst again."""
        self.moment_s = moment_s
        self.refresh(set(self.topics), now_s)

    def _slid(self, at_ms: int) -> None:
        """To a moment of the axis; at or after the last one, to now."""
        origin_s = self.board.throughput.origin_s
        if origin_s is None or self.slider is None:
            return
        ends = at_ms >= self.slider.maximum()
        self.moment_chosen.emit(None if ends else origin_s + max(self.slider.minimum(), at_ms) / 1000)

    def _show_empty(self, empty: bool) -> None:
        super()._show_empty(empty)
        if self.slider is not None:
            self.slider.setHidden(empty)
            self.live_button.setHidden(empty or self.moment_s is None)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def _place(self) -> None:
        """The slider's handle stands on the axis at the moment's own place, as long as the plot shows all."""
        if self.slider is None:
            return
        size = self.live_button.sizeHint()
        self.live_button.setGeometry(
            self.width() - PADDING - size.width(),
            self.numbers.y(),
            size.width(),
            min(32, self.numbers.height()),
        )
        plot, (left, _right) = self.plot, self.plot.span
        start, end = plot.x_of(left), min(plot.x_of(plot.now), plot.plot_rect().right())
        axis = plot.plot_rect().bottom()
        self.slider.setGeometry(
            QRect(
                round(plot.x() + start - HANDLE[0] / 2),
                round(plot.y() + axis - SLIDER / 2),
                max(HANDLE[0] + 2, round(end - start) + HANDLE[0]),
                SLIDER,
            )
        )
        self.slider.raise_()
        self.live_button.raise_()

    def refresh(self, topics: set[str], now_s: float) -> None:
        series, busy = self.board.throughput, self.board.busy()
        views = [v for v in self.board.ranked() if v.steps]
        empty = not any(v.last_step and v.last_step.finished_s > (series.origin_s or 0) for v in views)
        self._show_empty(empty)
        if empty:
            self.phrase_label.set_full_text("")
            return
        if not busy:  # nothing runs: stand still at the last token instead of running off to the right
            now_s = max(v.last_step.finished_s for v in views if v.last_step)
        rates = {v.info.rank: series.rates(v.info.name, now_s, busy) for v in views}
        clock = series.clock_s(now_s)
        past = None if self.moment_s is None else series.clock_s(self.moment_s)
        burst = self.board.run is not None and self.board.run.started.start_s == series.origin_s
        self.plot.caption = "Seconds since the burst began" if burst else "Seconds since the first prompt"
        self.plot.cursor = past
        self.plot.show_rates(rates, series.start_s(), series.window(now_s), clock)
        if past is None:
            self.phrase_label.set_full_text("by backend, stacked", "stacked", "")
        else:
            words = f"{seconds(past)}, not live"
            self.phrase_label.set_full_text(f"Showing {words}", words, "not live", "")
        if self.slider is not None:
            at = None if past is None else round(past * 1000)
            # The whole burst, even where the plot has only its last minute.
            self.slider.show_time(0, round(clock * 1000), at)
            self._place()
        self._show_numbers(views, rates, busy, past)

    def _show_numbers(
        self,
        views: list[BackendView],
        rates: dict[int, np.ndarray],
        busy: tuple[str, ...],
        past: float | None,
    ) -> None:
        """The last half second before now, or before the moment that is shown; n/a before what is kept."""
        recent: dict[int, float] = {}
        start = self.board.throughput.start_s()
        for view in views:
            known = rates[view.info.rank]
            if past is not None:
                known = known[: max(0, round((past - start) / BIN_S))]
            counts = len(known) and (past is not None or view.info.name in busy)
            recent[view.info.rank] = float(known[-RATE_BINS:].mean()) if counts else 0.0
        lost = past is not None and past < start
        total = None if lost else sum(recent.values())
        right: list[Piece] = []
        for view in views if past is None else ():  # there the button stands instead
            right.append(Piece(view.info.label, mark=view.info.rank, gap=16))
            right.append(Piece(figure(recent[view.info.rank], 1), True, gap=4))
        self.numbers.show_pieces((Piece(figure(total, 1), True), Piece("tok/s", gap=5)), tuple(right))
        parts = ", ".join(f"{v.info.label} {figure(recent[v.info.rank], 1)}" for v in views)
        when = "" if past is None else f" at {seconds(past)}"
        self.setAccessibleDescription(f"{figure(total, 1)} tokens per second{when}: {parts}.")

    def paint_ghost(self, painter: QPainter, rect: QRectF, theme: Theme, scale: float) -> None:
        s = scale
        below = draw_sentence(painter, rect, EMPTY_RATE, theme, s)
        zero = ghost_axis(painter, rect, "Seconds", theme, s)
        high, wide = ghost_height(zero - below - 16 * s, s), rect.width()
        if high < 24 * s:
            return
        painter.setPen(hair(theme.strong, 1, (3, 3)))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for left, right, low, top in ((0.06, 0.92, 0.0, 0.6), (0.3, 0.7, 0.6, 1.0)):
            xs = [half(rect.left() + part * wide) for part in (left, right)]
            ys = [half(zero - part * high) for part in (low, top)]
            painter.drawPolyline(
                QPolygonF(QRectF(xs[0], ys[1], xs[1] - xs[0], ys[0] - ys[1]).toRect().toRectF())
            )
