"""The rules of the house: layers, modules without torch or Qt, file lengths, and a Qt that counts right."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(p for top in ("engine", "app") for p in (ROOT / top).rglob("*.py"))
ALL_FILES = SOURCES + sorted(p for top in ("tests", "packaging") for p in (ROOT / top).rglob("*.py"))

TORCH_FREE = (
    "request text events clock errors config paths receipt backend transport engine cli kv.block_pool "
    "kv.manager kv.prefix scheduling.scheduler routing.router profiling.profile profiling.store "
    "workloads.presets simulation.simulate models.catalog models.fetch models.prepare "
    "models.inspect devices.probe"
)


def run_python(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_import_contracts_hold() -> None:
    command = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    done = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


def test_no_file_is_longer_than_400_lines() -> None:
    long = {relative(p): n for p in ALL_FILES if (n := len(p.read_text("utf-8").splitlines())) > 400}
    assert not long


def test_only_devices_name_the_accelerators() -> None:
    named = re.compile(r"torch\.(cuda|mps)\b|from torch import .*\b(cuda|mps)\b")
    allowed = ROOT / "engine" / "devices"
    found = [relative(p) for p in SOURCES if allowed not in p.parents and named.search(p.read_text("utf-8"))]
    assert not found


def test_the_torch_free_modules_load_without_torch() -> None:
    modules = ", ".join(f"engine.{name}" for name in TORCH_FREE.split())
    run_python(f"import sys, {modules}\nassert not {{'torch', 'transformers'}} & set(sys.modules)")


def test_the_window_loads_without_torch() -> None:
    run_python(
        "import sys, app.__main__, app.main_window\nassert not {'torch', 'transformers'} & set(sys.modules)"
    )


def test_the_engine_loads_without_qt() -> None:
    run_python(
        "import sys\n"
        "for name in ('PySide6', 'shiboken6', 'pyqtgraph', 'qasync'): sys.modules[name] = None\n"
        "import engine.engine, engine.cli, engine.simulation.simulate"
    )


QT_COUNTS = """
import sys
from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QApplication, QLabel

class Sender(QObject):
    fired = Signal(int)

app = QApplication([])
sender, label = Sender(), QLabel()
sender.fired.connect(lambda number: None)
sender.fired.emit(0), label.setText("")
before = sys.getrefcount(True), sys.getrefcount(None)
for number in range(1000):
    sender.fired.emit(number)
for number in range(100):
    label.setText("text")
after = sys.getrefcount(True), sys.getrefcount(None)
assert all(abs(a - b) < 10 for a, b in zip(after, before)), (before, after)
"""


def test_qt_keeps_the_reference_counts_of_true_and_none() -> None:
    """PySide6 6.12.0 on CPython 3.11 loses one with every signal, and the process dies of it."""
    run_python(QT_COUNTS)


def test_packaging_shadows_nothing() -> None:
    folder = ROOT / "packaging"
    assert not (folder / "__init__.py").exists()
    tree = ast.parse((folder / "dev.py").read_text("utf-8"), feature_version=(3, 9))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= set(sys.stdlib_module_names)
    assert not imported & {path.stem for path in folder.iterdir()}
