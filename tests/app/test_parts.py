"""The parts: theme, marks, KV map, slots, queue, rates, layout, settings."""

from math import ceil

import pytest
from fake_engine import CPU, GPU, NOW_S, golden_scene
from prompt_helpers import contrast
from PySide6.QtCore import QByteArray, QPoint, QRect, QRectF, QSize
from PySide6.QtGui import QFont, QImage, QPainter
from PySide6.QtWidgets import QFrame, QLabel, QVBoxLayout

from app.backend_rows import backend_rate, chips, slot_rows
from app.layout import default_sizes
from app.panels.kv_map import EVICTED, KvMap, fit, paint_cell
from app.series.board import Board
from app.settings import Settings
from app.theme import DARK, LIGHT, ThemeHolder, font, stylesheet
from app.widgets.controls import Button, LabelledCombo
from app.widgets.marks import hatch_brush, paint_badge, paint_mark
from app.widgets.queue import Chip, QueueView
from app.widgets.slots import SlotRow, SlotsView, places
from engine.events import StepDone
from engine.request import SamplingParams
from engine.step_report import BlockChange, BlockState, StepReport

THEMES = pytest.mark.parametrize("theme", [DARK, LIGHT], ids=["dark", "light"])
SCENE_NOW_S = 1_000.0 + NOW_S


@pytest.fixture
def board() -> Board:
    out = Board()
    out.apply(golden_scene())
    return out


@THEMES
def test_text_and_backend_colours_are_readable(theme) -> None:
    assert contrast(theme.text, theme.panel) >= 7
    assert contrast(theme.muted, theme.panel) >= 4.5
    for rank in range(4):
        colours = theme.backend(rank)
        assert contrast(colours.ink, theme.panel) >= 4.5
        assert contrast(colours.edge, theme.panel) >= 3
        assert contrast(theme.on_backend, colours.fill) >= 4.5


@THEMES
def test_the_style_sheet_has_every_token_filled_in(theme) -> None:
    assert "@" not in stylesheet(theme)


def test_fonts_have_four_sizes_two_weights_and_even_figures(qapp) -> None:
    assert [font(s).pixelSize() for s in ("hero", "lead", "body", "label")] == [32, 20, 15, 13]
    assert font("body", bold=True).weight() == QFont.Weight.DemiBold
    assert font("label", scale=1.6).pixelSize() == 21
    assert font("label").isFeatureSet(QFont.Tag("tnum"))


def test_the_holder_tells_only_when_the_theme_changes(qtbot) -> None:
    holder = ThemeHolder("dark")
    with qtbot.waitSignal(holder.changed):
        holder.toggle()
    assert holder.current.name == "light"
    with qtbot.assertNotEmitted(holder.changed):
        holder.set_mode("light")


def draw(paint, size: int = 48) -> QImage:
    image = QImage(size, size, QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(DARK.panel)
    painter = QPainter(image)
    paint(painter, QRectF(8, 8, size - 16, size - 16))
    painter.end()
    return image


def grey(image: QImage) -> QImage:
    return image.convertToFormat(QImage.Format.Format_Grayscale8)


def test_marks_differ_by_shape_alone(qapp) -> None:
    shapes = [
        draw(lambda p, r, rank=rank: paint_mark(p, r, rank, DARK)).convertToFormat(QImage.Format.Format_Mono)
        for rank in range(4)
    ]
    assert all(a != b for i, a in enumerate(shapes) for b in shapes[i + 1 :])


def test_badge_states_differ_in_greyscale(qapp) -> None:
    pictures = [
        grey(draw(lambda p, r, state=state: paint_badge(p, r, 0, "8", state, DARK)))
        for state in ("filled", "outline", "dashed")
    ]
    assert all(a != b for i, a in enumerate(pictures) for b in pictures[i + 1 :])


@pytest.mark.parametrize("dpr", [1.0, 2.0, 1.5])
def test_the_hatch_has_its_period_in_logical_pixels(qapp, dpr) -> None:
    brush = hatch_brush(0, DARK, dpr)
    assert brush.texture().width() * brush.transform().m11() == pytest.approx(6)


def test_cells_of_every_state_differ(qapp) -> None:
    states = [*BlockState, EVICTED]
    pictures = [
        draw(lambda p, r, state=state: paint_cell(p, 8, 8, 9, state, 0, DARK), 24) for state in states
    ]
    assert all(a != b for i, a in enumerate(pictures) for b in pictures[i + 1 :])


@pytest.mark.parametrize(
    ("blocks", "cell", "group"), [(384, 9, 1), (600, 7, 1), (900, 5, 1), (2_790, 3, 1), (6_000, 3, 4)]
)
def test_cells_shrink_until_the_pool_fits(blocks, cell, group) -> None:
    got = fit(blocks, 262, 174)
    columns, rows = got[2], ceil(ceil(blocks / got[3]) / got[2])
    assert got[0] == cell and got[3] == group
    assert columns * (got[0] + got[1]) - got[1] <= 262 and rows * (got[0] + got[1]) - got[1] <= 174


def test_the_map_names_a_block_and_paints_only_what_changed(qtbot, board) -> None:
    kv_map = KvMap(board, ThemeHolder("dark"), GPU)
    qtbot.addWidget(kv_map)
    kv_map.resize(262, 284)
    kv_map.show()
    kv_map.refresh(SCENE_NOW_S)
    assert kv_map.describe(14) == "Block 14, shared by 1, 2, 3, 4\nprefix tokens 224 to 239"
    assert kv_map.block_at(0, 32) == 0 and kv_map.block_at(0, 10) is None
    assert "31 shared by 4" in kv_map.accessibleDescription()
    kv_map.grab()
    before = kv_map._grid.toImage()
    change = BlockChange(14, BlockState.FREE, evicted=True)
    board.apply([StepDone(StepReport(GPU, 99, SCENE_NOW_S, SCENE_NOW_S, blocks=(change,)))])
    kv_map.refresh(SCENE_NOW_S)
    after = kv_map._grid.toImage()
    changed = {
        (x // 11, y // 11)
        for x in range(before.width())
        for y in range(before.height())
        if before.pixel(x, y) != after.pixel(x, y)
    }
    assert changed == {(14, 0)}
    kv_map.refresh(SCENE_NOW_S + 2)  # faded: a free cell like any other
    assert "0 just evicted" in kv_map.accessibleDescription()


def test_rows_chips_and_rates_of_the_golden_scene(board) -> None:
    gpu, cpu = board.backends[GPU], board.backends[CPU]
    rows = slot_rows(board, gpu, SCENE_NOW_S)
    assert [(row.number, row.generated) for row in rows] == [("1", 65), ("2", 59), ("3", 57), ("4", 56)]
    assert all(row.rate == pytest.approx(21.55, abs=0.1) for row in rows)
    assert [row.number for row in slot_rows(board, cpu, SCENE_NOW_S)] == ["8", "", "", ""]
    waiting = chips(board, gpu, SCENE_NOW_S)
    assert [(chip.number, round(chip.waits_s, 2)) for chip in waiting] == [
        ("5", 2.6),
        ("6", 2.55),
        ("7", 2.5),
    ]
    assert backend_rate(gpu, SCENE_NOW_S) == pytest.approx(86.2, abs=0.3)
    assert backend_rate(gpu, SCENE_NOW_S + 10) == 0.0


def test_a_long_queue_ends_in_a_count(qtbot) -> None:
    queue = QueueView(ThemeHolder("dark"))
    qtbot.addWidget(queue)
    queue.resize(424, 72)
    queue.set_chips([Chip(str(i), 1.0, 516, 496, False) for i in range(3)], 0)
    assert queue.places() == (3, 0)
    queue.set_chips([Chip(str(i), 1.0, 516, 496, i == 1) for i in range(38)], 0)
    assert queue.places() == (2, 36)
    assert "stale" in queue.accessibleDescription()
    queue.grab()


@pytest.mark.parametrize("pitch", [24, 33, 34, 40, 53, 54, 64, 130])
@pytest.mark.parametrize("width", [200, 305, 434, 1_240])
def test_the_parts_of_a_slot_row_stand_apart(pitch, width) -> None:
    """Bars of two rows never come near each other, and nothing leaves its row or lies over something else."""
    area = QRect(0, 2 * pitch, width, pitch)
    at = places(area)
    bars = [bar for bar in (at.in_bar, at.out_bar) if bar is not None]
    words = [text for text in (at.in_text, at.out_text) if text is not None]
    assert all(area.contains(part) for part in (at.badge.toAlignedRect(), *words, at.rate))
    assert all(area.top() <= bar.top() and bar.bottom() <= area.bottom() for bar in bars)
    assert all(not bar.intersects(text) for bar in bars for text in words)
    assert len(bars) < 2 or bars[0].right() < bars[1].left()
    assert bars[-1].right() + 8 <= at.rate.left() or width < 300, "a three-figure rate touches its bar"
    assert pitch - bars[-1].height() >= 16, "the gap to the bar of the next row"
    assert (at.in_text is None) == (pitch < 34)


def test_a_low_row_says_in_one_line_what_goes_on(qtbot) -> None:
    view = SlotsView(ThemeHolder("dark"))
    qtbot.addWidget(view)
    view.resize(434, 96)
    rows = [
        SlotRow("1", 516, 496, 506),
        SlotRow("2", 516, 496, 516, 57, 128, 21.5),
        SlotRow("3", 516, 496, 516, 57, 128, 1_234.0, note="stopping after this step"),
        SlotRow(),
    ]
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "app.widgets.slots.draw_pair", lambda _p, _at, strong, rest, *_, **__: said.append(strong + rest)
        )
        view.set_rows(rows, 0)
        view.grab()
    assert said[-3:] == ["506 of 516 in", "57 of 128 out", "stopping after this step"]


def test_default_sizes_are_those_of_the_design() -> None:
    assert default_sizes(QSize(1904, 1008)) == {
        "root": [736, 264],
        "upper": [384, 1512],
        "right": [360, 368],
        "charts": [752, 376, 368],
    }


@pytest.mark.parametrize(
    "size", [(1280, 720), (1366, 768), (1440, 900), (1700, 1000), (2560, 1440), (3840, 2160)]
)
def test_sizes_fill_the_area_and_fall_on_eights(size) -> None:
    area = QSize(size[0] - 16, size[1] - 72)
    sizes = default_sizes(area)
    assert sum(sizes["upper"]) + 8 == area.width()
    assert sum(sizes["charts"]) + 16 == sizes["upper"][1]
    heights = sizes["right"] if len(sizes["right"]) == 3 else [sum(sizes["right"]) + 8, sizes["root"][1]]
    assert sum(heights) + 8 * (len(heights) - 1) == area.height()
    assert sizes["right"][0] % 8 == 0


def test_the_prompt_grows_with_a_large_window_up_to_a_line_that_reads_well() -> None:
    wide = {w: default_sizes(QSize(w - 16, 1368))["upper"][0] for w in (1_600, 1_920, 2_560, 3_840, 7_680)}
    assert wide == {1_600: 384, 1_920: 384, 2_560: 512, 3_840: 640, 7_680: 640}


def test_settings_come_back_and_bad_ones_are_dropped_alone(tmp_path, qapp) -> None:
    path = tmp_path / "settings.ini"
    first = Settings(path)
    first.set_theme("light")
    first.set_choice("preset", "cold-12")
    first.set_sampling(SamplingParams(temperature=0.2, seed=7, stop=("END", "\n\n")))
    first.set_state("geometry", QByteArray(b"abc"))
    first.save()
    second = Settings(path)
    assert (second.theme(), second.choice("preset")) == ("light", "cold-12")
    assert second.sampling() == SamplingParams(temperature=0.2, seed=7, stop=("END", "\n\n"))
    assert second.state("geometry") == QByteArray(b"abc")
    second._store.setValue("theme", "purple")
    second._store.setValue("sampling", '{"temperature": 99, "top_p": 0.5, "seed": "x"}')
    second.save()
    third = Settings(path)
    assert third.theme() == "system" and third.choice("preset") == "cold-12"
    assert third.sampling() == SamplingParams(top_p=0.5)
    for broken in ('"END"', '["a", 1]', '[""]', "null"):
        third._store.setValue("sampling", f'{{"top_k": 3, "stop": {broken}}}')
        assert third.sampling() == SamplingParams(top_k=3)
    third._store.setValue("sampling", "not json")
    assert third.sampling() == SamplingParams()


def test_settings_of_another_schema_are_not_guessed_at(tmp_path, qapp) -> None:
    first = Settings(tmp_path / "settings.ini")
    first.set_theme("light")
    first._store.setValue("schema", 99)
    first.save()
    assert Settings(tmp_path / "settings.ini").theme() == "system"


def test_signals_and_text_do_not_wear_out_the_interpreter(qtbot) -> None:
    """PySide6 6.12.0 on Python 3.11 lost a reference to True or None with each of these calls."""
    import sys

    holder, label = ThemeHolder("dark"), QLabel()
    qtbot.addWidget(label)
    before = sys.getrefcount(True), sys.getrefcount(None)
    for index in range(1_000):
        holder.changed.emit()
        label.setText(str(index))
        label.move(QPoint(index % 7, 0))
    after = sys.getrefcount(True), sys.getrefcount(None)
    assert all(abs(a - b) < 200 for a, b in zip(after, before, strict=True))


@pytest.mark.parametrize("name", ["popover", "sheet", "card"])
def test_controls_on_a_raised_ground_show_their_edge(qtbot, name) -> None:
    themes = ThemeHolder("dark")
    frame = QFrame()
    qtbot.addWidget(frame)
    frame.setObjectName(name)
    frame.setStyleSheet(stylesheet(DARK))
    column = QVBoxLayout(frame)
    parts = [LabelledCombo(themes, "A", 160), Button(themes, "Start")]
    for part in parts:
        column.addWidget(part)
    frame.show()
    picture = frame.grab().toImage()
    for part in parts:
        place = part.geometry()
        edge = picture.pixelColor(place.left(), place.center().y())
        assert edge == (DARK.control if name == "card" else DARK.strong), type(part).__name__
