"""The README's three-minute tour in a real window on Xvfb, its keys and clicks sent by xdotool.

    python tests/smoke/three_minutes.py [FOLDER FOR PICTURES]

The window is a process like any user's, with folders of its own. What it did is read from its files: the
conversation in chats.sqlite and the recorded runs. Two tiny real backends first, emulated ones later.
"""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from app.virtual_display import unseen_screen  # noqa: E402

OPTIONS = ("--backends", "cpu,cpu", "--threads", "1", "--load-format", "dummy", "--architecture", "tiny",
           "--policy", "isolated-rates")  # fmt: skip
PATIENCE_S = 90.0
CARD_S = 2.0  # from the end of a run's file until its card can be closed, on a busy machine
COMPOSER, RUN, POLICY, MODEL = (190, 690), (915, 28), (550, 28), (290, 28)  # in a window of 1920x1080
GRAB = (
    "import sys; from PySide6.QtWidgets import QApplication; a = QApplication([]); "
    "ok = a.primaryScreen().grabWindow(0).save(sys.argv[1]); sys.exit(0 if ok else 1)"
)


class Failed(Exception):
    """A step of the tour did not do what the README says."""


class Visitor:
    """Hands and eyes outside the window's process."""

    def __init__(self, variables: dict[str, str], home: Path, pictures: Path | None) -> None:
        self.environment = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
        for name in ("DATA", "CACHE", "CONFIG", "LOG"):
            self.environment[f"OFFRAMP_{name}_DIR"] = str(home / name.lower())
        self.environment["XDG_CONFIG_HOME"] = str(home / "xdg")  # Qt's own settings
        self._data, self._pictures = home / "data", pictures
        self.children: list[psutil.Process] = []  # of the window, just before it is told to leave
        self.child = subprocess.Popen([sys.executable, "-m", "app", *OPTIONS], env=self.environment, cwd=ROOT)

    def hand(self, *arguments: object) -> str:
        command = ["xdotool", *(str(a) for a in arguments)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def keys(self, *keys: str) -> None:
        self.hand("key", "--delay", 60, *keys)

    def click(self, place: tuple[int, int]) -> None:
        self.hand("mousemove", *place, "sleep", 0.1, "click", 1)
        time.sleep(0.3)

    def look(self, name: str) -> bytes:
        """A picture of the screen, kept where a folder was given."""
        folder = self._pictures or self._data.parent
        path = folder / f"{name}.png"
        subprocess.run([sys.executable, "-c", GRAB, str(path)], env=self.environment, check=True)
        return path.read_bytes()

    def until(
        self, what: str, done: Callable[[], object], meanwhile: Callable[[], object] | None = None
    ) -> None:
        """Wait until `done`, doing something now and then. Raises `Failed` with the sentence `what`."""
        end_s = time.monotonic() + PATIENCE_S
        while not done():
            if self.child.poll() is not None:
                raise Failed(f"The window ended with code {self.child.returncode} before: {what}.")
            if time.monotonic() > end_s:
                self.look("failed")
                raise Failed(f"Not within {PATIENCE_S:.0f} s: {what}.")
            if meanwhile is not None:
                meanwhile()
            time.sleep(0.3)
        sys.stdout.write(f"seen: {what}\n")
        sys.stdout.flush()

    def window(self) -> str:
        return self.hand("search", "--onlyvisible", "--name", "^Offramp$").partition("\n")[0]

    def replies(self) -> list[tuple[str, str]]:
        """(reply, backend) of every finished exchange."""
        path = self._data / "chats.sqlite"
        if not path.is_file():
            return []
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5) as store:
            try:
                return list(store.execute("SELECT reply, backend FROM exchanges WHERE done = 1"))
            except sqlite3.OperationalError:
                return []

    def runs(self) -> list[dict]:
        """Heads of the recorded runs that have ended, oldest first."""
        out = []
        for path in sorted((self._data / "runs").glob("*.jsonl")):
            lines = path.read_text("utf-8").splitlines()
            if len(lines) > 1 and '"result"' in lines[-1][:80]:
                out.append(json.loads(lines[0]))
        return sorted(out, key=lambda head: head["date"])

    def ran(self, count: int, **wanted: object) -> bool:
        runs = self.runs()
        return len(runs) >= count and all(runs[count - 1][key] == value for key, value in wanted.items())


def tour(visitor: Visitor) -> None:
    """Each step of the README, and what must have come of it."""
    visitor.until("the window", visitor.window)
    window = visitor.window()
    for words in (("windowmove", window, 0, 0), ("windowsize", window, 1920, 1080), ("windowfocus", window)):
        visitor.hand(*words)
    time.sleep(1.0)
    visitor.keys("Escape")  # the first start shows the four steps around the window
    # 1. type a prompt
    visitor.click(COMPOSER)
    visitor.hand("type", "--delay", 20, "When does a CPU beat waiting for the GPU?")
    visitor.until("a reply with its backend", visitor.replies, lambda: visitor.keys("Return"))
    reply, backend = visitor.replies()[0]
    if not reply.strip() or not backend.startswith("CPU"):
        raise Failed(f"The reply is {reply[:40]!r} from {backend!r}.")
    before = visitor.look("1-reply")
    visitor.keys("ctrl+i")
    time.sleep(0.5)
    if visitor.look("1-receipt") == before:
        raise Failed("The receipt did not open.")
    visitor.keys("Escape")
    # 2. press Run
    visitor.click(RUN)
    visitor.until("a burst", lambda: visitor.ran(1, policy="isolated-rates", emulated=False))
    time.sleep(CARD_S)
    visitor.look("2-result")
    visitor.keys("Escape")
    # 3. change the policy and run again
    visitor.click(POLICY)
    visitor.keys("Escape", "Down")  # the list closes, the menu keeps the keyboard and takes the next entry
    time.sleep(0.3)
    visitor.keys("ctrl+r")
    visitor.until("a burst under another policy", lambda: visitor.ran(2, policy="round-robin"))
    time.sleep(CARD_S)
    visitor.keys("Escape")
    # 4. emulation from the model menu
    visitor.click(MODEL)
    visitor.keys("Escape", "End")
    time.sleep(1.0)
    visitor.until(
        "an emulated burst",
        lambda: visitor.ran(3, emulated=True),
        lambda: visitor.keys("ctrl+r"),
    )
    time.sleep(CARD_S)
    visitor.keys("Escape")
    # 5. presenter mode
    visitor.keys("F5")
    time.sleep(0.5)
    visitor.keys("space")
    visitor.until("a burst from presenter mode", lambda: visitor.ran(4, emulated=True))
    visitor.keys("Escape")
    time.sleep(0.3)
    visitor.look("5-presenter")
    visitor.keys("Prior", "Next", "F5")
    visitor.children = psutil.Process(visitor.child.pid).children(recursive=True)
    visitor.keys("ctrl+q")
    end_s = time.monotonic() + 15
    while visitor.child.poll() is None and time.monotonic() < end_s:
        time.sleep(0.05)
    if visitor.child.poll() != 0:
        raise Failed(f"The window did not leave cleanly: {visitor.child.poll()}.")


def run(pictures: Path | None = None) -> str:
    """Why the tour went wrong; "" when it went well."""
    with unseen_screen() as screen, tempfile.TemporaryDirectory() as home:
        if screen.name != "xvfb":
            return f"no real window: {screen.why}"
        visitor = Visitor(screen.variables, Path(home), pictures)
        process = psutil.Process(visitor.child.pid)
        try:
            tour(visitor)
            # A helper of multiprocessing ends when it sees its parent's pipe closed: a moment later.
            _, alive = psutil.wait_procs(visitor.children, timeout=5)
            left = [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
            return f"Processes are left: {left}." if left else ""
        except Failed as error:
            return str(error)
        finally:
            if visitor.child.poll() is None:
                for child in process.children(recursive=True):
                    child.kill()
                visitor.child.kill()
                visitor.child.wait()


def main(arguments: list[str]) -> int:
    pictures = Path(arguments[0]) if arguments else None
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
    problem = run(pictures)
    sys.stdout.write(f"{problem or 'The tour went well.'}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
