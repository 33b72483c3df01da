"""Charts as pictures, through Qt."""

from pathlib import Path

import pytest
from PySide6.QtGui import QImage

from app.chart_png import SCALE, paint_png
from engine.experiments.charts import Mark, Row, dots


def test_a_chart_becomes_a_picture_of_twice_its_size(qapp: object, tmp_path: Path) -> None:
    row = Row("total-delay", (1.0, 1.1, 0.9), 1.0, 0.9, 1.1)
    drawing = tmp_path / "chart.svg"
    drawing.write_text(dots("Makespan", "of each run", "s", [row], Mark("SIMULATED", "a test")), "utf-8")
    paint_png(drawing, drawing.with_suffix(".png"))
    image = QImage(str(drawing.with_suffix(".png")))
    assert image.width() == 1200 * SCALE and image.height() > 400
    colours = {image.pixelColor(x, y).name() for x in range(0, 2400, 3) for y in range(0, image.height(), 3)}
    assert "#ffffff" in colours and "#9c3d74" in colours  # the paper and the mark


def test_what_is_no_drawing_is_refused(qapp: object, tmp_path: Path) -> None:
    path = tmp_path / "chart.svg"
    path.write_text("nothing", "utf-8")
    with pytest.raises(ValueError, match="no SVG"):
        paint_png(path, tmp_path / "chart.png")
