"""No painter of the window cuts a text: every state, both schemes, three sizes. Labels and buttons too."""

from collections.abc import Callable

import pytest
from bursts import long_burst
from fake_engine import GPU, backend_infos, golden_scene
from painted import watched_text
from PySide6.QtCore import QPointF, QRect, Qt
from PySide6.QtGui import QPainter, QPixmap
from test_result import burst
from test_window import clipped

from app.theme import font
from engine.events import BackendState, BackendStatus, EngineFailed, PriceNews, SetupStep

SIZES = [(1280, 720), (1920, 1080), (3840, 2160)]
STOPPED = "Its process ended with code 134 at 14:02:11. Requests 1 to 4 ended with error, 5 to 7 moved."
PROBE = "It answers with other numbers than the CPU: no GPU backend. " * 3


def getting_ready(rig) -> None:
    rig.start()
    rig.engine.publish(
        SetupStep("download", "Downloading SmolLM2 135M Instruct", "61 of 93 MB", "running", 61e6, 93e6),
        SetupStep("probe", "Probe the GPU", PROBE, "failed"),
        *(BackendStatus(info, BackendState.WAITING) for info in backend_infos(False)),
    )  # fmt: skip


def failed(rig) -> None:
    rig.start()
    rig.engine.publish(EngineFailed("The model file is truncated: choose the model again."))


def idle(rig) -> None:
    rig.ready()


def golden(rig) -> None:
    rig.start()
    rig.engine.publish(*golden_scene(), PriceNews(GPU, 1.31, 0.21, 0.4))


def forty_eight(rig) -> None:
    rig.ready()
    other = long_burst()
    for name in ("requests", "run", "last_receipt", "throughput"):
        setattr(rig.board, name, getattr(other, name))
    for name, view in other.backends.items():
        rig.board.backends[name] = view
    rig.bridge.changed.emit({"requests", "routing", "backends", "run"})


def stopped(rig) -> None:
    golden(rig)
    rig.engine.publish(BackendStatus(backend_infos()[1], BackendState.STOPPED, STOPPED))


def receipt(rig) -> None:
    golden(rig)
    rig.settle()
    rig.window.show_last_receipt()


def presenter(rig) -> None:
    golden(rig)
    rig.settle()
    rig.window.toggle_presenter()


def result(rig) -> None:
    golden(rig)
    burst(rig)


SCENES: list[Callable] = [
    getting_ready, failed, idle, golden, forty_eight, stopped, receipt, presenter, result,
]  # fmt: skip


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_no_painted_text_is_cut(make_rig, scene) -> None:
    rig = make_rig()
    scene(rig)
    rig.settle()
    found, painted = [], set()
    for width, height in SIZES:
        rig.window.resize(width, height)
        for mode in ("dark", "light"):
            with watched_text() as (seen, cuts):
                rig.themes.set_mode(mode)
                rig.settle()  # some parts paint a picture first, and show it later
                rig.window.grab()
            painted |= set(seen)
            found += [f"{width}x{height} {mode}, {cut}" for cut in cuts]
            found += [f"{width}x{height} {mode}, {words}" for words in clipped(rig.window)]
    assert len(painted) > 5, "nothing was watched"
    assert not found, "\n".join(dict.fromkeys(found))


def paint(draw: Callable[[QPainter], None]) -> tuple[list[str], list]:
    pixmap = QPixmap(100, 40)
    with watched_text() as (seen, cuts):
        painter = QPainter(pixmap)
        painter.setFont(font("label"))
        draw(painter)
        painter.end()
    return seen, cuts


@pytest.mark.parametrize(
    ("draw", "cut"),
    [
        (lambda p: p.drawText(QRect(0, 0, 90, 16), Qt.AlignmentFlag.AlignLeft, "fits"), False),
        (lambda p: p.drawText(QRect(0, 0, 20, 16), Qt.AlignmentFlag.AlignLeft, "does not fit"), True),
        (lambda p: p.drawText(0, 0, 20, 16, Qt.AlignmentFlag.AlignLeft.value, "does not fit"), True),
        (lambda p: p.drawText(QRect(0, 0, 40, 16), Qt.TextFlag.TextWordWrap, "two lines of text"), True),
        (lambda p: p.drawText(QRect(0, 0, 90, 40), Qt.TextFlag.TextWordWrap, "two lines of it"), False),
        (lambda p: p.drawText(QPointF(2, 12), "a point"), False),
    ],
)
def test_the_watch_sees_a_cut_text(qapp, draw, cut) -> None:
    seen, cuts = paint(draw)
    assert len(seen) == 1 and bool(cuts) is cut


def test_the_watch_sees_a_text_beyond_its_widget(qtbot) -> None:
    from PySide6.QtWidgets import QWidget

    class Beyond(QWidget):
        def paintEvent(self, _event) -> None:
            QPainter(self).drawText(80, 12, "beyond the edge")

    widget = Beyond()
    qtbot.addWidget(widget)
    widget.resize(100, 20)
    with watched_text() as (_seen, cuts):
        widget.grab()
    assert [cut.text for cut in cuts] == ["beyond the edge"]
