"""Promise: where the table's rates and the ratio of a bench disagree, because something held one block up, it is said."""

from typing import Any

import pytest

from dynotune.bench.judging.totals import notes_of_shared, notes_of_totals
from dynotune.results.result import Arm, Comparison, Interval, Verdict
from tests.bench.made import blocks


def arms_of(held_up: float) -> list[Arm]:
    """Two equal arms, of which the second has a block that takes `held_up` times as long."""
    slow = blocks("b", 20_000)
    last: Any = slow[-1]
    slow = (*slow[:-1], last.model_copy(update={"seconds": last.seconds * held_up}))
    return [Arm(name="a", settings={}, blocks=blocks("a", 20_000)), Arm(name="b", settings={}, blocks=slow)]


@pytest.mark.parametrize(("held_up", "said"), [(30.0, True), (1.0, False)])
def test_rates_that_contradict_the_ratio_are_explained(held_up: float, said: bool) -> None:
    ratio = Interval(low=0.9, estimate=1.0, high=1.1)
    whole = Comparison(arm="b", against="a", label="b", role="whole", ratio=ratio, verdict=Verdict.UNRESOLVED)
    notes = notes_of_totals([whole, whole], arms_of(held_up))
    assert len(notes) == said
    if said:
        assert "(0.2" in notes[0]
        assert "the longest of b took 3" in notes[0]
        assert len(f"note: {notes[0]}") <= 160, "two lines of a terminal"
    nothing = whole.model_copy(update={"ratio": None})
    assert notes_of_totals([nothing], arms_of(held_up)) == []


def test_fewer_tokens_for_the_same_documents_are_said() -> None:
    """Once, with the arms that it is true of. Control: of arms that share nothing there is no note."""
    plain = Arm(name="a", settings={}, blocks=blocks("a", 20_000))
    once = tuple(
        block.model_copy(
            update={
                "sequence_tokens": block.real_tokens, "real_tokens": block.real_tokens // 2, "documents": 2 * block.examples
            }
        )
        for block in blocks("b", 20_000)
    )  # fmt: skip
    shared = [Arm(name=name, settings={}, blocks=once) for name in ("b", "c")]
    [note] = notes_of_shared([plain, *shared])
    assert note.startswith("b and 1 more: tokens/s are of documents, 2.00 times")
    assert not notes_of_shared([plain])
    last = tuple(block.model_copy(update={"documents": block.examples}) for block in once)
    assert not notes_of_shared([Arm(name="d", settings={}, blocks=last)])  # documents without their last tokens
