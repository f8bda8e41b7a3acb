"""Promise: what is wrong comes first, then by risk; what changes the result is only for the user to decide."""

from dynotune.audit.change import Change, Edit
from dynotune.audit.cost import Cost
from dynotune.audit.finding import AtStake, Risk
from dynotune.audit.place import Place
from dynotune.audit.plan.phases import When, phases
from tests.audit.made_up import a_finding


def test_order() -> None:
    found = [
        a_finding("OPT001", risk=Risk.BEHAVIOURAL, what=AtStake.RESULT),
        a_finding("OPT002", what=AtStake.CLARITY),
        a_finding("OPT003", risk=Risk.NUMERIC),
        a_finding("OPT004", risk=Risk.OPERATIONAL),
        a_finding("OPT005"),
        a_finding("OPT006", risk=Risk.NUMERIC, what=AtStake.RESULT),
    ]
    plan = phases(found, Cost())
    assert [(phase.when, [step.code for step in phase.steps]) for phase in plan] == [
        (When.REPAIR, ["OPT006"]),
        (When.SAFE, ["OPT005"]),
        (When.SET_UP, ["OPT004"]),
        (When.NUMERIC, ["OPT003"]),
        (When.TIDY, ["OPT002"]),
        (When.DECIDE, ["OPT001"]),
    ]


def test_one_remedy_in_several_places_is_one_step() -> None:
    change = (Change(Edit.SET, Place("a.yaml"), "a", 1),)
    (phase,) = phases([a_finding(changes=change), a_finding(place=Place("b.yaml", 1), changes=change)], Cost())
    (step,) = phase.steps
    assert len(step.findings) == 2
    assert step.by_fix
    refused = [step.findings[1]]
    assert not phases(step.findings, Cost(), refused)[0].steps[0].by_fix  # in one of the places it does not go
    assert not phases([a_finding()], Cost())[0].steps[0].by_fix
