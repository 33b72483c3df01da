"""Pictures of every state of the window: `python -m app.gallery FOLDER [--sizes 1280x720,1920x1080]`.

Sizes at which a screen is drawn larger have a process of their own: Qt takes that factor once.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from app.gallery_states import Gallery
from app.screenshot import parse_size
from app.text_size import FACTOR, FIT, factor_for
from app.theme import font
from engine.paths import models_dir

SIZES = "1280x720,1920x1080,3840x2160"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default=SIZES)
    options = parser.parse_args(argv)
    sizes = [parse_size(text) for text in options.sizes.split(",")]
    known = [size for size in sizes if size is not None]
    if len(known) != len(sizes):
        sys.stderr.write(f"--sizes {options.sizes} is unclear: write it as {SIZES}.\n")
        return 2
    options.folder.mkdir(parents=True, exist_ok=True)
    if FACTOR in os.environ:
        return draw(options.folder, known, float(os.environ[FACTOR]))
    groups: dict[float, list[tuple[int, int]]] = {}
    for size in known:
        groups.setdefault(factor_for(FIT, *size), []).append(size)
    for factor, some in groups.items():
        command = [sys.executable, "-m", "app.gallery", str(options.folder)]
        command += ["--sizes", ",".join(f"{width}x{height}" for width, height in some)]
        code = subprocess.call(command, env={**os.environ, FACTOR: f"{factor:g}"})
        if code:
            return code
    return 0


def draw(folder: Path, sizes: Sequence[tuple[int, int]], scale: float) -> int:
    """All pictures whose window is drawn `scale` times as large."""
    app = QApplication.instance() or QApplication(["offramp"])
    app.setFont(font("label"))
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["OFFRAMP_MODELS_DIR"] = str(models_dir())
        os.environ["OFFRAMP_DATA_DIR"] = scratch  # nobody's own runs are pictured, and none are added
        gallery = Gallery(folder, sizes, Path(scratch), scale)
        try:
            gallery.all()
        finally:
            gallery.close()  # an engine that is left would keep the process alive
    for path in gallery.saved:
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
