"""The menus of the toolbar: each entry has a line that explains it, each preset its arrivals."""

import pytest
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QStyleOptionViewItem

from app.series.choices import Choice, policy_choices, preset_choices
from app.series.preview import preview
from app.theme import ThemeHolder
from app.widgets.choice_list import STRIP, ChoiceDelegate, model_of, width_for
from app.widgets.controls import LabelledCombo
from engine.routing.policies import policy_names
from engine.simulation.simulate import fake_tokenise
from engine.workloads.presets import PRESETS, make_workload

LINES = {name: info.one_line for name, info in PRESETS.items()}


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_has_a_line_and_its_arrivals(name) -> None:
    found = preview(name)
    assert found is not None and len(found.parts) == PRESETS[name].count
    assert found.parts[0] >= 0.0 and found.parts[-1] == 1.0 and list(found.parts) == sorted(found.parts)
    assert found.words.startswith(f"{PRESETS[name].count} requests")
    (choice,) = preset_choices([name], LINES)
    assert choice.preset == name and choice.note[-1] in ".?"


def test_arrivals_are_the_preset_s_own() -> None:
    offsets = [r.offset_s for r in make_workload("seed-warm-8", fake_tokenise).requests]
    found = preview("seed-warm-8")
    assert found is not None and found.words == "8 requests in 0.35 s"
    assert found.parts == pytest.approx([at / offsets[-1] for at in offsets])
    steady = preview("steady-1.0")
    assert steady is not None and "paced to the machine" in steady.words
    assert preview("no such preset") is None


def test_every_policy_has_a_line() -> None:
    for choice in policy_choices(policy_names(["cpu", "gpu"]), {"cpu": "CPU", "gpu": "GPU"}):
        assert choice.note.endswith(".") and len(choice.note) > 20, choice.value


def test_the_strip_is_drawn_and_read_out(qtbot) -> None:
    combo = LabelledCombo(ThemeHolder("dark"), "Burst", 200)
    qtbot.addWidget(combo)
    choices = preset_choices(["seed-warm-8", "head-of-line"], LINES)
    combo.set_choices(choices)
    assert combo.model().item(0).accessibleText().startswith("seed-warm-8. 8 requests in 0.35 s. 8 prompts")
    delegate, wide = ChoiceDelegate(combo._themes, combo), width_for(choices)
    assert wide >= STRIP + 200

    def picture(choice: Choice) -> QImage:
        model = model_of([choice], combo)
        image = QImage(wide, 44, QImage.Format.Format_RGB32)
        image.fill(0)
        option = QStyleOptionViewItem()
        option.rect = image.rect()
        painter = QPainter(image)
        delegate.paint(painter, option, model.index(0, 0))
        painter.end()
        return image

    plain = Choice("seed-warm-8", "seed-warm-8", "8 prompts.")
    with_ticks = Choice("seed-warm-8", "seed-warm-8", "8 prompts.", preset="seed-warm-8")
    other = Choice("seed-warm-8", "seed-warm-8", "8 prompts.", preset="head-of-line")
    assert len({bytes(picture(c).constBits()) for c in (plain, with_ticks, other)}) == 3


def test_the_button_explains_what_is_chosen(qtbot) -> None:
    combo = LabelledCombo(ThemeHolder("dark"), "Burst", 200)
    qtbot.addWidget(combo)
    combo.set_choices(preset_choices(["seed-warm-8"], LINES))
    combo.grab()
    assert combo.toolTip().splitlines() == ["Burst: seed-warm-8", f"{LINES['seed-warm-8']}."]
    combo.set_note("Getting ready…")
    combo.grab()
    assert combo.toolTip() == "Burst: Getting ready…"
