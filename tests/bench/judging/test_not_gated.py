"""Promise: where a change is left out of everything, the result says that no gate saw those arms, and which gates stand for
them; the worst of these holds."""

from typing import Any

import pytest

from dynotune.bench.asking.asked import Pairing
from dynotune.bench.judging.gated import gates_for, note_of_gates, note_of_lead, worst
from dynotune.bench.showing.markdown import markdown
from dynotune.bench.showing.page import bench_page
from dynotune.bench.showing.terminal import screen
from dynotune.results.result import Parity, Result
from tests.bench import made

CHANGES = ("packing", "fused", "flash")
ALONE = [Pairing(name, "base", name, "alone") for name in CHANGES]
LAST = [Pairing("all", f"all but {name}", name, "last") for name in CHANGES]
WHOLE = Pairing("all", "base", "all", "whole")
EVERY = [WHOLE, *ALONE, *LAST]


def of(arm: str, state: Any = "same") -> Parity:
    return Parity(arm=arm, against="base", kind="exact", state=state)


def gates(**states: str) -> list[Parity]:
    """As `--attribute` asks them: everything, and each change alone."""
    return [of(name, states.get(name, "same")) for name in ("all", *CHANGES)]


def test_of_two_arms_that_were_gated_nothing_stands_for_it() -> None:
    own, standing = gates_for(gates(), ALONE[0], EVERY)
    assert own == of("packing")
    assert standing == []


def test_for_a_change_left_out_its_own_gate_and_that_of_everything_stand() -> None:
    own, standing = gates_for(gates(), LAST[1], EVERY)
    assert own is None
    assert [one.arm for one in standing] == ["fused", "all"]
    assert gates_for([], LAST[1], EVERY) == (None, []), "where nothing was gated nothing stands for it"


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ({}, "same"),
        ({"fused": "not checked"}, "not checked"),
        ({"all": "not checked"}, "not checked"),
        ({"all": "differs", "fused": "not checked"}, "differs"),
        ({"fused": "differs"}, "differs"),
        ({"packing": "differs"}, "same"),
    ],
)
def test_the_worst_of_them_holds(states: dict[str, str], state: str) -> None:
    """Control: what another change does says nothing of this one."""
    found = worst(gates_for(gates(**states), LAST[1], EVERY)[1])
    assert found is not None
    assert found.state == state


def test_it_is_told_by_name_and_on_the_page() -> None:
    """Controls: of an attribution of two changes each arm was gated, and of two configurations there is nothing to tell."""
    result = made.attribute()
    comparisons = tuple(
        one.model_copy(
            update={"gated_by": f"{one.label} alone against base, all against base"} if one.role == "last" else {}
        )
        for one in result.comparisons
    )
    [note] = note_of_gates(comparisons, result.parity)
    assert note.startswith("Not gated: all but packed_execution, all but fused_lora, all but flash_attention.")
    told = made.attribute(comparisons=comparisons, notes=(note,))
    told = Result.model_validate_json(told.model_dump_json())
    page = bench_page(told)
    assert page.count("not gated") == 3
    assert "stands for it: fused_lora alone against base, all against base" in page
    for text in (" ".join(line.plain for line in screen(told, 80)), markdown(told).replace("\\_", "_"), page):
        assert "Not gated: all but packed_execution" in text
    gated = (*result.parity, *(made.same(f"all but {label}", "base") for label, *_ in made.CHANGES))
    assert note_of_gates(comparisons, gated) == []
    assert note_of_gates(made.ab().comparisons, made.ab().parity) == []
    assert "not gated" not in bench_page(made.attribute())


@pytest.mark.parametrize(
    ("states", "end"),
    [
        ({}, "and of all together."),
        ({"fused": "not checked"}, "and of all together; not checked was that of fused."),
        (dict.fromkeys(("all", *CHANGES), "not checked"), "and of all together; none of that was checked."),
    ],
    ids=["all", "but one", "none"],
)
def test_what_a_spent_budget_left_unchecked_is_not_said_to_have_been(states: dict[str, str], end: str) -> None:
    """Control: a rung of a ladder in the same bench is not what the sentence is of."""
    every = [
        made.compared(one.arm, one.against, one.label, one.role, 1.1, gated_by="a" if one.role == "last" else "")
        for one in EVERY
    ]
    rung = Parity(arm="+ flash", against="fused", kind="exact", state="not checked")
    [note] = note_of_gates(every, [*gates(**states), rung])
    assert note.endswith(end)


def test_where_another_arm_leads_a_sweep_the_gate_was_of_the_one_that_failed() -> None:
    """Controls: where the first arm ran there is nothing to tell, nor where no two of the others did."""
    names = [f"rows={n}" for n in (64, 16, 4, 1)]
    pairings = [Pairing(name, names[1], name, "whole") for name in (names[2], names[3], names[0])]
    gated = [
        Parity(arm=name, against=names[0], kind="exact", state="not checked" if name == names[3] else "same")
        for name in names[1:]
    ]

    def compared(pairings: Any) -> list[Any]:
        found = []
        for one in pairings:
            by = ", ".join(gate.arm for gate in gates_for(gated, one, pairings)[1])
            found.append(made.compared(one.arm, one.against, one.label, one.role, 1.1, gated_by=by))
        return found

    assert note_of_lead(compared(pairings), gated, {names[0]: "out of memory"}) == [
        "Not gated against each other: rows=16, rows=4, rows=1. What each does to updates was asked beside rows=64,"
        " which could not be measured; not checked was that of rows=1."
    ]
    assert note_of_lead(compared(pairings), gated, dict.fromkeys((names[0], *names[2:]))) == []
    first = [Pairing(name, names[0], name, "whole") for name in names[1:]]
    assert note_of_lead(compared(first), gated, ()) == []
    assert note_of_lead(compared(first), gated, {names[1]: "out of memory"}) == []


def test_of_many_the_first_are_named() -> None:
    many = tuple(
        made.compared("all", f"all but {n}", f"{n}", "last", 1.1, gated_by="all against base") for n in range(10)
    )
    [note] = note_of_gates(many, [of("all")])
    assert note.startswith("Not gated: all but 0, all but 1, all but 2 and 7 more.")
