"""Promise: an audit is one screen, whatever was found, and its end (checked, bottleneck, what next) is always there."""

from collections.abc import Callable

import pytest

from dynotune.audit.finding import AtStake, Risk
from dynotune.audit.run import Result
from dynotune.audit.show.terminal import LINES, screen
from tests.audit.made_up import a_finding
from tests.audit.show import made


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("make", made.EVERY.values(), ids=made.EVERY)
def test_one_screen(make: Callable[[], Result], width: int) -> None:
    lines = [line.text for line in screen(make(), width)]
    assert len(lines) <= LINES
    assert all(len(line) <= width for line in lines)
    assert all(line.isprintable() for line in lines)
    words = " ".join(" ".join(lines).split())
    assert "Checked" in words
    assert "could not check" in words
    assert any(line.startswith("Bottleneck") for line in lines)
    assert lines[-1].startswith("Next:") or any(line.startswith("Next:") for line in lines[-3:])


def test_what_does_not_fit_is_counted_and_all_shows_it() -> None:
    lines = [line.text for line in screen(made.many(), 80)]
    (rest,) = [line for line in lines if line.startswith("and ") and "OPT001" in line]
    shown = sum(line.startswith(("error ", "warning ", "note ")) for line in lines)
    assert int(rest.split()[1]) + shown == len(made.many().findings)
    everything = "\n".join(line.text for line in screen(made.many(), 80, everything=True))
    assert sum(everything.count(f"a{i}.yaml") >= 1 for i in range(1, len(made.many().findings) + 1)) == len(
        made.many().findings
    )


def test_each_finding_has_all_its_parts() -> None:
    words = " ".join(line.text for line in screen(made.result(a_finding(risk=Risk.NUMERIC)), 140))
    for part in ("warning", "OPT001", "sft.yaml:3 `optim`", "[E1]", "launches several", "Set it otherwise.", "numeric"):
        assert part in words, part
    assert "up to 10 % of a step, at most 6 min an epoch" in words


def test_wrong_comes_before_slow_and_slow_by_seconds() -> None:
    found = made.result(
        a_finding("OPT001", high=0.1),
        a_finding("ATT001", high=0.4),
        a_finding("MSK001", what=AtStake.RESULT, high=None),
    )
    assert [one.code for one in found.findings] == ["MSK001", "ATT001", "OPT001"]
    assert "ATT001" in next(line.text for line in screen(found, 140) if line.text.startswith("Bottleneck"))


def test_what_changes_the_result_is_only_listed_to_decide() -> None:
    found = made.result(a_finding(risk=Risk.BEHAVIOURAL))
    lines = [line.text for line in screen(found, 140)]
    assert any(line.startswith("For you to decide, never applied: OPT001") for line in lines)
    assert "decide" in lines[-1]


def test_the_plan_says_the_order_and_the_measuring_command() -> None:
    found = made.result(a_finding("ATT001", risk=Risk.NUMERIC, measure="dynotune bench --config a.yaml"), a_finding())
    lines = [line.text for line in screen(found, 140, plan=True)]
    order = [line.strip().split(" (")[0] for line in lines if line.strip()[:2] in ("1.", "2.")]
    assert order == ["1. OPT001", "2. ATT001"]
    assert any("measure: dynotune bench" in line for line in lines)


def test_an_error_is_what_comes_next_also_where_its_remedy_is_to_be_decided() -> None:
    wrong = a_finding("CFG001", what=AtStake.STOPS, risk=Risk.BEHAVIOURAL, text="Rename it.")
    assert screen(made.result(wrong, a_finding()), 140)[-1].text.startswith("Next: CFG001 at sft.yaml:3")
