"""The leak check itself: a test that leaves something behind fails and is told what."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import multiprocessing, threading, time
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QWidget

kept = []

def test_thread():
    threading.Thread(target=time.sleep, args=(1,), name="forgotten").start()

def test_process():
    multiprocessing.get_context("spawn").Process(target=time.sleep, args=(9,), daemon=True).start()

def test_timer(qapp):
    kept.append(QWidget())
    QTimer(kept[0]).start(1000)

def test_what_ends_in_time():
    threading.Timer(0.05, lambda: None).start()
"""


def test_what_is_left_behind_fails_the_test_that_left_it(pytester: pytest.Pytester) -> None:
    check = (Path(__file__).parent / "conftest.py").read_text(encoding="utf-8")
    pytester.makeconftest(check.replace("_GRACE_S = 2.0", "_GRACE_S = 0.3"))
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=4, errors=3)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_thread*",
            "left behind: thread *forgotten*",
            "*ERROR at teardown of test_process*",
            "left behind: process *",
            "*ERROR at teardown of test_timer*",
            "left behind: timer * in QWidget*",
        ]
    )
