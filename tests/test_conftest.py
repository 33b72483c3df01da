"""The leak check itself: a test that leaves something behind fails and is told what."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

LEAKS = {
    "thread": """
        import threading
        gate = threading.Event()
        def test_leak():
            threading.Thread(target=gate.wait, args=(1,), name="forgotten").start()
        """,
    "process": """
        import multiprocessing, time
        def test_leak():
            multiprocessing.get_context("spawn").Process(target=time.sleep, args=(9,), daemon=True).start()
        """,
    "timer": """
        from PySide6.QtCore import QTimer
        from PySide6.QtWidgets import QWidget
        def test_leak(qapp):
            global window
            window = QWidget()
            QTimer(window).start(1000)
        """,
}


@pytest.mark.parametrize("kind", LEAKS)
def test_what_is_left_behind_fails_the_test(pytester: pytest.Pytester, kind: str) -> None:
    check = (Path(__file__).parent / "conftest.py").read_text(encoding="utf-8")
    pytester.makeconftest(check.replace("_GRACE_S = 2.0", "_GRACE_S = 0.2"))
    pytester.makepyfile(LEAKS[kind])
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines([f"*left behind: {kind} *"])


def test_what_ends_in_time_passes(pytester: pytest.Pytester) -> None:
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(
        """
        import threading
        def test_short():
            threading.Timer(0.1, lambda: None).start()
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
