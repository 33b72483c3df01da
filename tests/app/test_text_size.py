"""The size of text: what fits a screen, that Qt takes it, and that nothing is cut when it is large."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.settings import Settings
from app.text_size import FACTOR, FIT, LEAST, PERCENTS, TEXT_SIZES, apply_text_size, factor_for

ROOT = Path(__file__).parents[2]
SCENES = "no_painted_text and (forty_eight or receipt or presenter or result)"
OPEN = """
import sys
from app.text_size import apply_text_size
apply_text_size(sys.argv[1])
from PySide6.QtWidgets import QApplication
app = QApplication([])
screen = app.primaryScreen()
print(screen.devicePixelRatio(), screen.geometry().width(), screen.geometry().height())
"""

START = """
import app.application as application
from engine.cli import window_parser

def opened(app, args, size, settings, preferences):
    screen = app.primaryScreen()
    settings.set_theme("light")
    assert settings.theme() == "light" and settings.state("geometry") is None
    print(screen.devicePixelRatio(), screen.geometry().width(), screen.geometry().height())
    return 0

application._run = opened
raise SystemExit(application.run(window_parser().parse_args([]), []))
"""


@pytest.mark.parametrize(
    ("text_size", "screen", "factor"),
    [
        (FIT, (1920, 1080), 1.0),
        (FIT, (2560, 1440), 1.0),
        (FIT, (3440, 1440), 1.0),  # wide, but no taller: larger text would cut the rows
        (FIT, (2880, 1800), 1.5),
        (FIT, (3840, 2160), 2.0),
        ("100", (3840, 2160), 1.0),
        ("125", (1920, 1080), 1.25),
        ("200", (1920, 1080), 1.5),  # the window needs 1280x720
        ("200", (1024, 768), 1.0),
    ],
)
def test_text_grows_as_far_as_the_window_fits_the_screen(text_size, screen, factor) -> None:
    assert factor_for(text_size, *screen) == pytest.approx(factor)


@given(st.sampled_from(TEXT_SIZES), st.integers(320, 8_000), st.integers(240, 5_000))
def test_text_never_shrinks_nor_makes_the_window_larger_than_the_screen(text_size, width, height) -> None:
    factor = factor_for(text_size, width, height)
    assert 1 <= factor <= 2
    if factor > 1:
        assert width / factor >= LEAST[0] - 1e-6 and height / factor >= LEAST[1] - 1e-6
        assert text_size == FIT or factor <= int(text_size) / 100


def test_who_sets_the_factor_or_has_an_application_is_left_alone(qapp) -> None:
    own = {FACTOR: "1.1"}
    apply_text_size("200", own)
    assert own == {FACTOR: "1.1"}
    later: dict[str, str] = {}
    apply_text_size("200", later)  # there is an application already: it would have no effect
    assert later == {}


def opened(tmp_path, text_size: str, width: int, height: int, code: str = OPEN) -> list[float]:
    """The screen as a window sees it that is opened with `text_size` on a screen of that many pixels."""
    screen = {"name": "s", "x": 0, "y": 0, "width": width, "height": height, "logicalDpi": 96,
              "logicalBaseDpi": 96, "dpr": 1.0}  # fmt: skip
    told = tmp_path / "screens.json"
    told.write_text(json.dumps({"screens": [screen]}))
    environ = {k: v for k, v in os.environ.items() if k != FACTOR}
    environ["QT_QPA_PLATFORM"] = f"offscreen:configfile={told}"
    environ |= {key: str(tmp_path) for key in ("XDG_CONFIG_HOME", "HOME", "OFFRAMP_DATA_DIR")}
    done = subprocess.run([sys.executable, "-c", code, text_size], cwd=ROOT, env=environ, text=True,
                          capture_output=True, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()]


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS scales whole screens by itself")
def test_a_4k_screen_without_scaling_is_drawn_like_a_full_hd_one(tmp_path) -> None:
    assert opened(tmp_path, FIT, 3840, 2160) == [2.0, 1920, 1080]
    assert opened(tmp_path, FIT, 1920, 1080) == [1.0, 1920, 1080]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere settings are not kept in a folder of the test")
def test_what_the_window_needs_survives_the_look_at_the_screen(tmp_path) -> None:
    assert opened(tmp_path, FIT, 3840, 2160, START) == [2.0, 1920, 1080]


def test_a_chosen_size_counts_from_the_next_start(tmp_path) -> None:
    assert opened(tmp_path, "125", 1920, 1080) == [1.25, 1536, 864]


def test_the_choice_is_kept_and_a_bad_one_is_dropped(rig) -> None:
    dialog = rig.window.wishes.show_settings()
    assert dialog.window_page.text_size.currentText() == "Fit the screen"
    dialog.window_page.text_size.chosen.emit("150")
    dialog.close()
    assert rig.settings.text_size() == "150"
    again = rig.window.wishes.show_settings()
    assert again.window_page.text_size.currentText() == "150 %"
    again.close()
    rig.settings.set_text_size("1000")
    assert rig.settings.text_size() == FIT


def test_settings_remember_every_size_that_is_offered(tmp_path) -> None:
    for percent in PERCENTS:
        Settings(tmp_path / "s.ini").set_text_size(percent)
        assert Settings(tmp_path / "s.ini").text_size() == percent


def test_nothing_is_cut_when_every_pixel_is_one_and_a_half() -> None:
    """Painted texts and labels again, on a screen of high density: fonts are hinted otherwise there."""
    environ = dict(os.environ) | {FACTOR: "1.5", "QT_QPA_PLATFORM": "offscreen"}
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", "-k", SCENES,
             "tests/app/test_painted_text.py"]  # fmt: skip
    done = subprocess.run(words, cwd=ROOT, env=environ, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3_000:]
    assert " passed" in done.stdout
