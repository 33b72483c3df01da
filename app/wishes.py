"""What the user can ask of the window, whichever button, key or menu asks for it."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from app.comparison import Comparer
from app.models_dialog import ModelsDialog
from app.series.choices import policy_choices, preset_choices
from app.series.next_steps import AGAIN, MODELS, RESTART
from app.series.outcome import RunSummary, partner, with_token_times
from app.series.verdict import Verdict
from app.session import EMULATED, EMULATED_PRESET
from app.settings_dialog import SettingsDialog
from app.widgets.compare_form import CompareForm
from engine.errors import BackendError
from engine.events import BurstDone, Notice
from engine.weights import DEFAULT_WEIGHTS, PolicyWeights

if TYPE_CHECKING:
    from app.main_window import MainWindow
    from engine.experiments.source import Source


KEPT_RUNS = 50


class Wishes:
    """Bursts, policies, models and engines. The window shows; this decides what is asked of the engine."""

    def __init__(self, window: "MainWindow") -> None:
        self._window = window
        self._bridge, self._board, self._settings = window.bridge, window.board, window.settings
        self.last_run: tuple[str, str] | None = None  # preset, policy
        self._own: dict[str, Callable[..., Any]] = {}  # a burst that is no preset, by its name
        self.runs: list[RunSummary] = []  # of this session
        self.comparer = Comparer(window.bridge, parent=window)
        self.comparer.progress.connect(self._compare_progress)
        self.comparer.finished.connect(self._compared)
        self.comparer.failed.connect(self._compare_failed)
        self._first_run: tuple[str, str] | None = None  # waits until the engine is ready

    # bursts

    def run(self) -> None:
        """The burst and policy of the toolbar."""
        bar = self._window.toolbar
        if bar.run_button.isEnabled():
            self._run(bar.preset.currentText(), bar.policy.currentText())

    def repeat(self) -> None:
        if self._window.toolbar.run_button.isEnabled() and self.last_run is not None:
            self._run(*self.last_run)

    def _run(self, preset: str, policy: str) -> None:
        self.last_run = (preset, policy)
        bar = self._window.toolbar
        for combo, name in ((bar.preset, preset), (bar.policy, policy)):
            if combo.findText(name) >= 0:  # the toolbar tells what runs, whoever asked for it
                combo.setCurrentText(name)
        bar.asked_to_run()
        self._bridge.run_burst(preset, policy or None, self._own.get(preset))

    def run_own(self, source: "Source") -> None:
        """A burst that is no preset, under the policy of the toolbar. Raises `BackendError`."""
        bar = self._window.toolbar
        if not bar.run_button.isEnabled():
            raise BackendError("Something runs or is getting ready: wait until Run can be pressed.")
        self._own = {source.name: lambda tokenise: source.build(tokenise, 0)}  # kept to be repeated
        self._run(source.name, bar.policy.currentText())

    def run_when_ready(self, preset: str, policy: str) -> None:
        """At once if the engine is ready already."""
        self._first_run = (preset, policy)
        self.run_waiting()

    def run_waiting(self) -> None:
        if self._board.ready and self._first_run is not None:
            wanted, self._first_run = self._first_run, None
            self._run(*wanted)

    def stop_all(self) -> None:
        self._first_run = None
        self.comparer.stop()
        self._bridge.cancel_all()
        self._window.toolbar.took_notice()

    # results

    def burst_done(self, done: BurstDone) -> None:
        """Keep the result and show it, unless it was stopped or nothing ran."""
        if done.aborted or not done.result.get("requests"):
            return
        if self.comparer.running:  # one of many runs: the comparison tells them all at its end
            return
        if self.runs and self.runs[-1].result.get("run_id") == done.run_id:
            return
        rows = (r for r in self._board.requests.values() if r.run_id == done.run_id)
        times = {r.number: [t - r.arrival_s for t in r.token_times_s] for r in rows}
        self.runs.append(RunSummary(with_token_times(done.result, times), self._emulation()))
        del self.runs[:-KEPT_RUNS]
        self.show_result()

    # comparisons

    def show_compare(self) -> CompareForm | None:
        window, bar = self._window, self._window.toolbar
        if not bar.compare_button.isEnabled():
            return None
        preset = bar.preset.currentText()
        took = [r.makespan_s for r in self.runs if r.preset == preset and r.makespan_s]
        policies = policy_choices(self._bridge.policies(), self._board.labels())
        form = CompareForm(
            window.themes, policies, bar.policy.currentText(), preset, took[-1] if took else None, window
        )
        form.start_requested.connect(lambda a, b, pairs: self.compare(preset, a, b, pairs))
        form.closed.connect(form.deleteLater)
        form.open_at(bar.compare_button)
        return form

    def compare(self, preset: str, a: str, b: str, pairs: int) -> None:
        slots = {view.info.name: view.info.slots for view in self._board.backends.values()}
        profile = str(self._window.session.value("emulate") or "local")
        self.comparer.start(preset, a, b, pairs, slots, self._emulation(), profile)
        self._compare_progress()

    def _compare_progress(self, *_counts: int) -> None:
        self._window.toolbar.comparing = self.comparer.words()
        self._window.toolbar.refresh(self._window.now_s())

    def _compared(self, verdict: Verdict | None) -> None:
        self._compare_progress()
        self._bridge.set_policy(self._window.toolbar.policy.currentText())
        if verdict is None:
            self._window.toast.show_notice(Notice("info", "The comparison ended before its first pair."))
        else:
            self._window.show_verdict(verdict)

    def _compare_failed(self, words: str) -> None:
        self._compare_progress()
        self._bridge.cancel_all()
        self.fail(words)

    def _emulation(self) -> str:
        model = self._board.model
        return (model.emulation or "emulated") if model is not None and model.emulated else ""

    def show_result(self) -> None:
        if not self.runs:
            self._window.toast.show_notice(Notice("info", "No burst has ended yet: press Run."))
            return
        self._window.show_result(self.runs[-1], partner(self.runs))

    # menus of the toolbar

    def set_choices(self, presets: list[str], policies: list[str], preset: str, policy: str) -> None:
        """Fill the menus once the engine is imported."""
        from engine.workloads.presets import PRESETS

        lines = {name: info.one_line for name, info in PRESETS.items()}
        bar = self._window.toolbar
        bar.preset.set_choices(preset_choices(presets, lines), preset)
        bar.policy.set_choices(policy_choices(policies, self._board.labels()), policy)
        bar.refresh(self._window.now_s())

    def show_policies(self) -> None:
        """Names of backends are known now, and with them the policies that force one."""
        bar, names = self._window.toolbar, self._bridge.policies()
        current = bar.policy.currentText()
        bar.policy.set_choices(policy_choices(names, self._board.labels()), current)
        if names and current and current not in names:
            self._bridge.set_policy(bar.policy.currentText())

    def choose_policy(self, name: str) -> None:
        self._bridge.set_policy(name)
        self._settings.set_choice("policy", name)

    def choose_preset(self, name: str) -> None:
        self._settings.set_choice("preset", name)

    # engines

    def _plain_policy(self) -> str | None:
        """The policy of the toolbar, unless it forces a backend that the next engine may not have."""
        name = self._window.toolbar.policy.currentText()
        aliases = ("forced-fastest", "forced-slowest")
        return None if not name or (name.startswith("forced-") and name not in aliases) else name

    def choose_model(self, model: str) -> None:
        self._window.session.choose_model(model, self._plain_policy())

    def load_model(self, model: str, context: int) -> None:
        """From the models sheet, which also says how long a conversation may be."""
        self._window.session.choose_model(model, self._plain_policy(), context)

    def show_models(self) -> ModelsDialog:
        return self._window.model_menu.show_sheet(self._board, self._window.themes)

    def choose_profile(self, profile: str) -> None:
        self._window.session.emulate(profile, self._plain_policy())

    def reload(self, **changes: object) -> None:
        policy = self._plain_policy()
        self._window.session.reload(**changes, **({"policy": policy} if policy else {}))

    def run_emulated(self) -> None:
        """The one thing that works without a model: published timings, eight requests."""
        policy = self._plain_policy()
        self._window.session.emulate(EMULATED, policy)
        bar = self._window.toolbar
        at = bar.preset.findText(EMULATED_PRESET)
        if at >= 0:
            bar.preset.setCurrentIndex(at)
        self.run_when_ready(EMULATED_PRESET, policy or bar.policy.currentText())

    def set_limits(self, changes: Mapping[str, object]) -> None:
        """Slots and token budget that the running backends can take as they run."""
        session = self._window.session
        session.adopt(changes)
        self._bridge.set_limits(str(session.args.slots), session.args.token_budget)

    def set_weights(self, weights: PolicyWeights) -> None:
        """What total-delay weighs from now on, also after the next start."""
        changes = {"weights": None if weights == DEFAULT_WEIGHTS else str(weights)}
        self._window.session.save(changes)
        self._window.session.adopt(changes)
        self._bridge.set_weights(weights)

    def take_step(self, key: str) -> None:
        """What the prompt panel offers where nothing can be asked."""
        if key == MODELS:
            self.show_models()
        elif key == AGAIN:
            self.reload()
        elif key.startswith(RESTART):
            self._bridge.restart_backend(key.removeprefix(RESTART))

    def show_settings(self) -> SettingsDialog:
        window = self._window
        dialog = SettingsDialog(window.session, window.themes, self._settings.text_size(), window)
        dialog.reload_requested.connect(lambda changes: self.reload(**changes))
        dialog.limits_chosen.connect(self.set_limits)
        dialog.weights_chosen.connect(self.set_weights)
        dialog.theme_chosen.connect(window.set_theme)
        dialog.text_size_chosen.connect(self._settings.set_text_size)
        dialog.open()
        return dialog

    def fail(self, words: str) -> None:
        self._window.toast.show_notice(Notice("error", words))
