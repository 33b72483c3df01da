"""The pictures of the window: their sizes, their names, and the scale that a large screen is drawn with."""

import os
import subprocess
import sys

import pytest
from PySide6.QtGui import QImage

from app import gallery
from app.gallery_camera import Camera
from app.text_size import FACTOR


def test_sizes_that_screens_draw_larger_have_a_process_of_their_own(tmp_path, monkeypatch) -> None:
    asked = []
    monkeypatch.delenv(FACTOR, raising=False)
    monkeypatch.setattr(
        subprocess, "call", lambda command, env: asked.append((command[-1], env[FACTOR])) or 0
    )
    assert gallery.main([str(tmp_path / "new")]) == 0
    assert asked == [("1280x720,1920x1080", "1"), ("3840x2160", "2")]
    monkeypatch.setattr(subprocess, "call", lambda command, env: 3)
    assert gallery.main([str(tmp_path)]) == 3, "nothing is drawn after a failure"


def test_an_unclear_size_is_told(tmp_path, capsys) -> None:
    assert gallery.main([str(tmp_path), "--sizes", "large"]) == 2
    assert "--sizes large is unclear" in capsys.readouterr().err


def test_with_a_factor_the_pictures_are_drawn_here(tmp_path, monkeypatch) -> None:
    drawn = []
    monkeypatch.setenv(FACTOR, "1.5")
    monkeypatch.setattr(gallery, "draw", lambda *found: drawn.append(found) or 0)
    assert gallery.main([str(tmp_path), "--sizes", "2880x1620"]) == 0
    assert drawn == [(tmp_path, [(2880, 1620)], 1.5)]


@pytest.mark.parametrize("scale", ["1", "2"])
def test_a_picture_has_the_pixels_of_its_name(tmp_path, scale) -> None:
    """In a process of its own, as Qt takes the factor once."""
    code = (
        "import sys, tempfile; from pathlib import Path; from PySide6.QtWidgets import QApplication\n"
        "from app.gallery_camera import Camera\n"
        "app = QApplication([]); folder = Path(sys.argv[1]); scratch = Path(tempfile.mkdtemp(dir=folder))\n"
        "camera = Camera(folder, [(2560, 1440)], scratch, float(sys.argv[2]))\n"
        "window = camera.window(); camera.take(window, 'empty'); print(window.width(), window.height())\n"
        "camera.close()\n"
    )
    environ = {"QT_QPA_PLATFORM": "offscreen", FACTOR: scale, "OFFRAMP_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, "-c", code, str(tmp_path), scale]
    ran = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == [str(2560 // int(scale)), str(1440 // int(scale))]
    names = sorted(path.name for path in tmp_path.glob("*.png"))
    assert names == ["empty-dark-2560x1440.png", "empty-light-2560x1440.png"]
    for name in names:
        picture = QImage(str(tmp_path / name))
        assert (picture.width(), picture.height()) == (2560, 1440)
    assert Camera(tmp_path, [], tmp_path).scale == 1
