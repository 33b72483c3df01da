"""Every state of the window that is pictured, one after the other.

One emulated run is enough: the window stands still at a moment and is then drawn in both schemes and every
size. What cannot be waited for (a download) is told to the board as the engine would.
"""

import time
from collections.abc import Callable, Iterator

from PySide6.QtWidgets import QDialog, QWidget

from app.dialogs import show_about, show_log, show_shortcuts
from app.experiments_dialog import show_experiments
from app.gallery_camera import Camera, wait, wait_until
from app.main_window import MainWindow
from app.session import EMULATED
from app.settings_dialog import PAGES
from engine.events import BackendState, EngineFailed, SetupStep
from engine.request import SamplingParams

MOMENT_S, LATER_S = 2.8, 6.0
BEFORE_S = 1.2
POLICY, BASELINE = "isolated-rates", "forced-fastest"
PAIRS = 2
EXPERIMENT = "Sweep of slots"
PROMPTS = (
    "What does a prefix cache do? Two sentences.",
    "Give me an everyday comparison.",
    "When does it not help?",
)
FAILED = "The model file is truncated: choose the model again to download it anew."


class Gallery(Camera):
    """Every state, one after the other."""

    def all(self) -> None:
        self.before_the_engine()
        self.emulated()

    def before_the_engine(self) -> None:
        window = self.window()
        self.take(window, "empty")
        self.tell(
            window,
            SetupStep("download", "Downloading SmolLM2 135M Instruct", "", "running", 61e6, 93e6),
            SetupStep("verify", "Unpacking and checking the model", "", "waiting"),
        )
        self.take(window, "getting-ready")
        self.tell(window, EngineFailed(FAILED))
        self.take(window, "failed")
        window.begin_tour()
        self.take(window, "tour")
        window.close()

    def emulated(self) -> None:
        window = self.window("--emulate", EMULATED, "--policy", POLICY)
        from engine.workloads.presets import PRESETS

        window.session.start()
        window.wishes.set_choices(list(PRESETS), window.bridge.policies(), "seed-warm-8", POLICY)
        wait_until(lambda: window.board.ready)
        self.take(window, "emulated")
        self._converse(window)
        self._burst(window, "seed-warm-8", MOMENT_S)
        self.take(window, "busy")
        panels: dict[str, Callable[[], QWidget]] = {
            "prompt": lambda: window.prompt,
            "backends": lambda: window.backends,
            "routing": lambda: window.routing,
            "ttft": lambda: window.ttft,
            "throughput": lambda: window.throughput,
            "requests": lambda: window.requests,
        }
        for name, part in panels.items():
            self.take(window, f"panel-{name}", part)
        self._moment_before(window)
        self._receipt(window)
        window.toggle_presenter()
        self.take(window, "presenter")
        window.leave_presenter()
        window.unfreeze()
        wait_until(lambda: window.card.isVisible())
        window.card.close_card()
        wait_until(window.toolbar.run_button.isEnabled)
        window.wishes.repeat()  # drawing pictures held that one up: its times are not those of the profile
        wait_until(lambda: window.card.isVisible())
        self._result(window)
        self._comparison(window)
        self._dialogs(window)
        self._experiment(window)
        self._burst(window, "seed-warm-48", LATER_S)
        self.take(window, "busy-48")
        window.unfreeze()
        window.wishes.stop_all()
        wait_until(window.toolbar.run_button.isEnabled)
        self._deaths(window)
        window.close()

    def _deaths(self, window: MainWindow) -> None:
        """One backend ends in the middle of a burst, then the other: what follows is the engine's doing."""
        self._burst(window, "seed-warm-8", MOMENT_S)
        for view, name in zip(window.board.ranked()[::-1], ("error", "all-stopped"), strict=True):
            # Nobody else has a reason to end a backend: no public way leads there.
            window.bridge._engine._post(
                lambda core, who=view.info.name: core.supervisor.units[who].transport.ask_to_close()
            )
            window.unfreeze()
            wait_until(lambda view=view: view.state is BackendState.STOPPED)
            window.freeze(time.monotonic())
            if window.card.isVisible():
                wait_until(lambda: self._judged(window))
                self.take(window, "result-error")
                window.card.close_card()
            self.take(window, name)

    def _moment_before(self, window: MainWindow) -> None:
        """The same burst, looked back at."""
        run = window.board.run
        if run is not None:
            window.time_cursor.go_to(run.started.start_s + BEFORE_S)
            wait(60)
            self.take(window, "looking-back")
            window.time_cursor.go_live()

    def _receipt(self, window: MainWindow) -> None:
        """Of the last decision, then with what might have been."""
        window.show_last_receipt()
        self.take(window, "receipt")
        window.sheet.ask_what_if()
        hindsight, run = window.looking_back.hindsight, window.board.run
        wait_until(lambda: run is None or not hindsight.what_if(run.started.run_id).running)
        bar = window.sheet.scroll.verticalScrollBar()
        bar.rangeChanged.connect(lambda _least, most: bar.setValue(most))
        window.tick()
        bar.setValue(bar.maximum())  # the table has grown before anybody listened
        self.take(window, "what-if")
        bar.rangeChanged.disconnect()
        window.sheet.close_sheet()

    def _result(self, window: MainWindow) -> None:
        """The card with its regret, the same run as a table, and the list of all runs."""
        wait_until(lambda: self._judged(window))
        self.take(window, "result")
        window.card.requests_button.setChecked(True)
        self.take(window, "result-requests")
        window.looking_back.ask_why()
        self.take(window, "result-receipt")
        window.card.close_card()
        self.shots(window, "history", lambda: window.looking_back.show_history().window())

    @staticmethod
    def _judged(window: MainWindow) -> bool:
        """Whether the regret of the last burst is known, or why there is none."""
        hindsight, run = window.looking_back.hindsight, window.board.run
        state = hindsight.regret(run.started.run_id) if run is not None else None
        return state is None or state.failed or state.regret is not None

    def _converse(self, window: MainWindow) -> None:
        """Two conversations, one with two replies, and what the prompt panel opens."""
        prompt = window.prompt
        prompt.composer.sampling_line.set_sampling(SamplingParams(max_new_tokens=24, seed=7))
        for text in PROMPTS:
            if text == PROMPTS[-1]:
                prompt.new_conversation()
            prompt.send(text)
            wait_until(lambda: prompt.talks.live is None)
        prompt.open_conversation(1)
        for name, show in (
            ("conversations", prompt.show_conversations),
            ("sampling", prompt.composer.sampling_line.open),
            ("system-prompt", prompt.edit_system),
        ):
            self.shots(window, name, show)

    def _burst(self, window: MainWindow, preset: str, moment_s: float) -> None:
        before = window.board.run
        window.wishes.run_when_ready(preset, POLICY)
        wait_until(lambda: window.board.run is not before)
        start_s = window.board.run.started.start_s if window.board.run else time.monotonic()
        wait_until(lambda: time.monotonic() - start_s >= moment_s)
        window.bridge.drain()
        window.freeze(start_s + moment_s)

    def _settings(self, window: MainWindow) -> Iterator[tuple[str, Callable[[], QDialog]]]:
        """Every page of them."""

        def show(page: int) -> QDialog:
            dialog = window.wishes.show_settings()
            dialog.tabs.setCurrentIndex(page)
            return dialog

        for page, name in enumerate(PAGES):
            yield f"settings-{name.lower()}", lambda page=page: show(page)

    def _comparison(self, window: MainWindow) -> None:
        """What is asked, how far it is, and the verdict: one that two pairs cannot give."""
        self.shots(window, "compare", window.wishes.show_compare)
        window.wishes.compare("seed-warm-8", BASELINE, POLICY, PAIRS)
        run = window.board.run
        wait_until(lambda: window.board.run is not run and window.wishes.comparer.words() != "")
        wait(int(1_000 * MOMENT_S))
        self.take(window, "comparing")
        wait_until(lambda: window.card.isVisible())
        self.take(window, "verdict")
        window.card.close_card()

    def _experiment(self, window: MainWindow) -> None:
        """Before, during and after one that is simulated."""
        dialog = show_experiments(window)
        self.shots(window, "experiments", lambda: dialog)
        show_experiments(window)
        dialog.experiment.setCurrentText(EXPERIMENT)
        dialog.start()
        wait_until(lambda: dialog.bar.maximum() > 0 and dialog.bar.value() > 0)
        self.shots(window, "experiment-runs", lambda: show_experiments(window))
        wait_until(lambda: dialog.outcome is not None and not dialog.busy)
        self.shots(window, "experiment", lambda: show_experiments(window))

    def _dialogs(self, window: MainWindow) -> None:
        for name, show in (
            *self._settings(window),
            ("shortcuts", lambda: show_shortcuts(window)),
            ("about", lambda: show_about(window)),
            ("log", lambda: show_log(window, window.themes)),
            ("models", window.wishes.show_models),
        ):
            self.shots(window, name, show)
