"""The README's tour in a real window, where there is an unseen screen for it."""

import shutil

import pytest

from tests.smoke.three_minutes import run


@pytest.mark.skipif(shutil.which("Xvfb") is None, reason="Xvfb is not installed")
@pytest.mark.skipif(shutil.which("xdotool") is None, reason="xdotool is not installed")
def test_a_visitor_goes_through_the_three_minutes() -> None:
    problem = run()
    if problem.startswith("no real window"):
        pytest.skip(problem)
    assert not problem
