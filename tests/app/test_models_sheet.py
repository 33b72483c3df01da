"""The models sheet: what it lists and says, downloads that pause and resume, loading, unloading, deleting."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_engine import setup_events
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from test_window import clipped

from app.downloads import Downloads
from app.models_dialog import ModelsDialog
from app.series.shelf_rows import Transfer, load_words, look_of
from app.session import UNLOADED
from engine.errors import FetchError
from engine.events import BackendState, BackendStatus, SetupStep
from engine.models.catalog import DEFAULT_MODEL, model_path
from engine.models.fit import Fit
from engine.shelf import ShelfModel

FITS = Fit("fits", "1.8 GB of 25.3 GB for 2 copies and their KV pools")


def model(name: str = "small", **changes: object) -> ShelfModel:
    values: dict = {
        "title": name.title(), "owner": "", "family": "llama", "tensors": ("Q4_1",), "licence": "Apache-2.0",
        "size_bytes": 98_000_000, "installed": False, "fit": FITS,
    }  # fmt: skip
    return ShelfModel(name, **{**values, **changes})


ROWS = [
    model(DEFAULT_MODEL, installed=True, note="a demonstrator"),
    model("half", arrived_bytes=49_000_000),
    model("large", fit=Fit("too large", "90 GB of 25 GB")),
    model("/x/theirs.gguf", owner="Ollama", installed=True),
    model("/x/odd.gguf", owner="LM Studio", installed=True, family="gemma3",
          fit=Fit("refused", "The architecture 'gemma3' is not supported: use llama.")),
]  # fmt: skip


class Fetches:
    """Stands in for the child: each download waits for `go`, reports half, and obeys `check`."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.go = threading.Event()
        self.error = ""

    def __call__(
        self, name: str, on_progress: Callable[[SetupStep], None], check: Callable[[], None]
    ) -> Path:
        self.names.append(name)
        on_progress(SetupStep("download", "Downloading", "49 of 98 MB", "running", 49e6, 98e6))
        while not self.go.wait(0.01):
            check()
        if self.error:
            raise FetchError(self.error)
        return Path("/x")


@pytest.fixture
def fetches() -> Fetches:
    return Fetches()


@pytest.fixture
def sheet(rig, qtbot, fetches) -> ModelsDialog:
    downloads = rig.window.model_menu.downloads
    downloads._fetch = fetches
    made = ModelsDialog(
        rig.session, rig.board, rig.themes, downloads, rig.window, read=lambda _config, _context: list(ROWS)
    )
    made.show()
    qtbot.waitUntil(lambda: len(made.rows) == len(ROWS))
    yield made
    made.close()


def test_every_row_says_size_licence_family_and_fit_and_offers_what_can_be_done(sheet) -> None:
    offered = {n: r.action.text() if r.action.isVisible() else "" for n, r in sheet.rows.items()}
    assert offered == {DEFAULT_MODEL: "Unload", "half": "Resume", "large": "Download",
                       "/x/theirs.gguf": "Load", "/x/odd.gguf": ""}  # fmt: skip
    deletable = {n for n, r in sheet.rows.items() if r.delete.isVisible()}
    assert deletable == {"half"}  # what is loaded stays, and others' files are never deleted
    assert sheet.rows[DEFAULT_MODEL].facts.full_text() == "98 MB, llama, Q4_1, Apache-2.0"
    assert "1.8 GB of 25.3 GB" in sheet.rows[DEFAULT_MODEL].fit.text()
    assert "gemma3" in sheet.rows["/x/odd.gguf"].fit.text()
    assert "read only" in sheet.rows["/x/theirs.gguf"].facts.full_text()
    assert "demonstrator" in sheet.rows[DEFAULT_MODEL].note.text()
    assert clipped(sheet) == []


def test_a_download_shows_progress_pauses_resumes_and_ends(sheet, qtbot, fetches) -> None:
    row = sheet.rows["large"]
    row.action.click()
    qtbot.waitUntil(lambda: row.action.text() == "Pause" and "49 of 98 MB" in row.state.text())
    assert row.bar.isVisible() and row.bar.accessibleDescription() == "50%"
    row.action.click()
    qtbot.waitUntil(lambda: sheet.rows["large"].action.text() == "Resume")
    assert "49 MB are here" in sheet.rows["large"].state.text() and not sheet.rows["large"].bar.isVisible()
    fetches.go.set()
    sheet.rows["large"].action.click()
    qtbot.waitUntil(lambda: sheet._downloads.by_name["large"].state == "done")
    assert fetches.names == ["large", "large"]


def test_a_failed_download_says_why_in_its_row(sheet, qtbot, fetches) -> None:
    fetches.error = "The hub cannot be reached: check the network."
    fetches.go.set()
    sheet.rows["half"].action.click()
    qtbot.waitUntil(lambda: "check the network" in sheet.rows["half"].state.text())
    assert sheet.rows["half"].action.text() == "Resume"


def test_downloads_go_on_without_the_sheet_and_end_with_the_window(rig, qtbot, fetches) -> None:
    downloads = rig.window.model_menu.downloads
    downloads._fetch = fetches
    downloads.start("large")
    qtbot.waitUntil(lambda: fetches.names == ["large"])
    thread = downloads.by_name["large"].thread
    rig.window.close()
    assert not thread.is_alive() and downloads.by_name["large"].state == "paused"


def test_an_ended_download_is_told_where_the_sheet_is_closed(rig, qtbot, fetches) -> None:
    fetches.go.set()
    downloads = rig.window.model_menu.downloads
    downloads._fetch = fetches
    downloads.start("large")
    qtbot.waitUntil(lambda: rig.window.toast.isVisible() and "is downloaded" in rig.window.toast.label.text())


def test_load_takes_the_context_and_unload_frees_the_engine(rig, sheet, qtbot) -> None:
    menu = rig.window.model_menu
    sheet.load_requested.connect(menu.load_requested)
    sheet.unload_requested.connect(rig.session.unload)
    sheet.view.context.setValue(2048)
    sheet.rows["/x/theirs.gguf"].action.click()
    qtbot.waitUntil(lambda: bool(rig.engines))
    assert (rig.engine.config.model, rig.engine.config.context) == ("/x/theirs.gguf", 2048)
    assert rig.session.preferences.values["context"] == 2048
    rig.engine.publish(*setup_events())
    rig.settle()
    sheet._show_rows()
    assert sheet.rows["/x/theirs.gguf"].action.text() == "Unload"
    old = rig.engine
    sheet.rows["/x/theirs.gguf"].action.click()
    qtbot.waitUntil(lambda: old.closed)
    rig.settle()
    assert rig.board.failure == UNLOADED and not rig.window.toolbar.run_button.isEnabled()
    assert sheet.view.state.text() == "Nothing is loaded."
    prompt = rig.window.prompt
    assert prompt.title_label.text() == "No model" and prompt.failure.property("tone") == "muted"
    assert prompt.failure.text() == UNLOADED and not prompt.getting_ready._lines, "nothing is wrong"
    assert sheet.rows["/x/theirs.gguf"].action.text() == "Load"
    rig.window.wishes.choose_model("/x/theirs.gguf")
    qtbot.waitUntil(lambda: len(rig.engines) == 2)
    assert not rig.session.unloaded and rig.board.failure is None and not rig.board.asked


def test_deleting_asks_in_the_row(sheet, qtbot, monkeypatch) -> None:
    gone: list[str] = []
    monkeypatch.setattr("app.models_dialog.delete_model", gone.append)
    row = sheet.rows["half"]
    row.delete.click()
    assert row.sure.isVisible() and "Delete 49 MB" in row.state.text() and not gone
    row.keep.click()
    assert not row.sure.isVisible() and row.delete.isVisible() and not gone
    row.delete.click()
    row.sure.click()
    assert gone == ["half"] and "was deleted" in sheet.view.state.text()


def test_a_look_at_the_hub_names_refusals_before_a_download(rig, sheet, qtbot) -> None:
    refused = model("hf:o/r/m.gguf", family="gemma3", fit=Fit("refused", "Tensors of the type IQ2_XXS."))
    sheet._look_at = lambda _config, _context, text: (None, refused)
    sheet.view.reference.setText("o/r/m.gguf")
    QTest.keyClick(sheet.view.reference, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: "hf:o/r/m.gguf" in sheet.rows)
    assert "cannot be used" in sheet.view.state.text() and "IQ2_XXS" in sheet.view.state.text()
    assert not sheet.rows["hf:o/r/m.gguf"].action.isVisible()
    assert not sheet._downloads.by_name  # Return in the field pressed no other button


def test_an_empty_reference_is_answered_in_words(sheet) -> None:
    sheet.view.look_button.click()
    assert "owner/repository/file.gguf" in sheet.view.state.text()


def test_loading_is_told_with_its_share(rig) -> None:
    board = rig.board
    board.ready = False
    info = board.ranked()[0].info
    board.apply([BackendStatus(info, BackendState.LOADING, "Reading the layers, 45%")])
    words, _tone, share = load_words(board, False)
    assert "Reading the layers, 45%" in words and share == 0.45
    board.apply([SetupStep("download", "Downloading", "5 of 10 MB", "running", 5e6, 10e6)])
    assert load_words(board, False)[2] == 0.5


@pytest.mark.parametrize("state", ["", "running", "paused", "failed"])
@pytest.mark.parametrize("row", ROWS, ids=[r.name for r in ROWS])
def test_no_row_offers_to_delete_what_is_not_ours_or_runs(row, state) -> None:
    for loaded in (False, True):
        look = look_of(row, Transfer(state, 5, 10, "words"), loaded, False)
        assert not (look.can_delete and (row.owner or loaded and row.installed or state == "running"))
        assert look.action in ("", "Load", "Unload", "Download", "Pause", "Resume")
        assert not (row.refused and look.action in ("Load", "Download"))


def test_the_sheet_opens_from_the_menu_once(rig, qtbot, monkeypatch) -> None:
    monkeypatch.setattr("app.models_dialog.shelf", lambda _judge: list(ROWS))
    rig.window.actions_by_name["models"].trigger()
    first = rig.window.model_menu.sheet
    rig.window.actions_by_name["models"].trigger()
    assert rig.window.model_menu.sheet is first
    first.close()
    assert rig.window.model_menu.sheet is None


def test_downloads_of_one_name_run_once(qtbot, fetches) -> None:
    downloads = Downloads(fetches)
    downloads.start("a")
    downloads.start("a")
    qtbot.waitUntil(lambda: fetches.names == ["a"])
    downloads.close()
    assert not downloads._timer.isActive()


def test_the_path_of_the_default_model_is_known() -> None:
    assert model_path(DEFAULT_MODEL).suffix == ".gguf"
