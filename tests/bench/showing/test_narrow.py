"""Promise: at 80 columns, on 25 lines, nothing that was asked for is lost: ratios, steps of a ladder, memory, and the caveat
of the closing sentence."""

import re
from collections.abc import Callable

import pytest
from rich.cells import cell_len

from dynotune.bench.judging.sentence import closing
from dynotune.bench.showing.grids import arms, changes
from dynotune.bench.showing.markdown import markdown
from dynotune.bench.showing.terminal import LINES, screen
from dynotune.results.result import Arm, Check, Interval, Parity, Result, Verdict
from dynotune.show.terminal import left_out
from tests.bench import made


def lines_of(result: Result, width: int = 80) -> list[str]:
    lines = [line.plain for line in screen(result, width, ["bench.json"])]
    assert len(lines) <= LINES
    assert max(map(cell_len, lines)) <= width
    return lines


def whole(lines: list[str]) -> str:
    return " ".join(lines)


@pytest.mark.parametrize("width", [80, 140])
def test_a_sweep_says_how_much_faster_each_arm_is(width: int) -> None:
    """With figures as wide as they come. Control: there was no room for all columns, and at 140 there is."""
    sweep = made.sweep()
    assert ("s/step" in left_out(arms(sweep), width)) is (width == 80)
    lines = lines_of(sweep, width)
    for label, ratio in (("=4 ", "2.390x [2.386, 2.394]"), ("=16 ", "3.390x [3.386, 3.394]")):
        [row] = [line for line in lines if label in line and ratio in line]
        assert row.count("behavioural") == 1, "the kind stands on the line, and takes its room once"
    memory = "22.0 (24.0); 30.0 (32.0); 61.0 (63.0); -"
    assert (f"peak GiB (reserved), by row: {memory}" in whole(lines)) is (width == 80)
    assert "61.0 (63.0)" in whole(lines)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_sweep_says_how_many_real_tokens_a_step_of_each_arm_has(width: int) -> None:
    """Where the table has no room, by row; of an arm without figures none. Control: the arms of another bench, whose steps
    are alike, have no such column, and no line of it."""
    of_swept = made.sweep().arms
    sizes = [_with_tokens(arm, 1000 * 4**i) for i, arm in enumerate(of_swept[:3])]
    said = lines_of(made.sweep(arms=(*sizes, of_swept[3])), width)
    in_table = "real tokens/step" not in left_out(arms(made.sweep()), width)
    assert in_table is (width == 140)
    if in_table:
        for size, real in ((1, "1,000"), (4, "4,000"), (16, "16,000")):
            assert any(re.search(rf"_size={size} +{real} ", line) for line in said)
    else:
        assert "real tokens/step, by row: 1,000; 4,000; 16,000; -" in said
    assert "real tokens" not in whole(lines_of(made.ab(), width))
    assert "| real tokens/step |" in markdown(made.sweep())
    assert "real tokens/step" not in markdown(made.ab())


def _with_tokens(arm: Arm, tokens: int) -> Arm:
    """Of a step, whatever its blocks had."""
    of_block = {"real_tokens": 5 * tokens, "label_tokens": tokens, "processed_tokens": 6 * tokens}
    return arm.model_copy(update={"blocks": tuple(block.model_copy(update=of_block) for block in arm.blocks)})


def test_a_kind_that_the_row_does_not_say_stays_with_its_speed() -> None:
    """Of an arm that nobody checked, of which it is known that it changes what is learned."""
    kinds = tuple(
        Parity(arm=one.arm, against=one.against, kind="behavioural", state="not checked") for one in made.sweep().parity
    )
    rows = [line for line in lines_of(made.sweep(parity=kinds)) if re.search(r"=(4|16) .*\]", line)]
    assert len(rows) == 2
    assert all("] behavioural" in row and row.endswith("not checked") for row in rows)


def test_steps_of_a_ladder_stand_beside_its_attribution() -> None:
    """Where the table has no room for a third column, in a line by row. Control: at 140 columns they are in the table."""
    both = made.attribute_on_a_ladder()
    assert "this step" in left_out(changes(both), 80)
    assert "this step" not in left_out(changes(both), 140)
    said = whole(lines_of(both))
    assert "this step, by row: 2.280x [2.276, 2.284]; +6.2 % [5.8, 6.6]; +0.2 % [-0.2, 0.6]" in said
    assert "memory, by row: -3.1 GiB; -9.4 GiB; 0 GiB" in said
    assert "by row" not in whole(lines_of(both, 140))


def test_the_kind_of_a_step_stands_on_its_line() -> None:
    both = made.attribute_on_a_ladder()
    kinds = tuple(one.model_copy(update={"kind": "behavioural", "state": "behavioural"}) for one in both.parity)
    said = whole(lines_of(both.model_copy(update={"parity": kinds})))
    assert "this step, by row: 2.280x [2.276, 2.284] behavioural; +6.2 % [5.8, 6.6] behavioural;" in said


def test_ten_changes_on_a_ladder_keep_their_steps_and_the_verdict() -> None:
    """As many as a LoRA run on an H200 has, with intervals as wide as they were there."""
    wide = Interval(low=0.93, estimate=4.52, high=24.36)
    labels = tuple((f"speedup_with_a_long_name_{i}", 1.1, 1.05, 0.0) for i in range(10))
    one = made.attribute(labels)
    steps = tuple(
        each.model_copy(update={"role": "step", "ratio": wide}) for each in one.comparisons if each.role == "alone"
    )
    said = whole(lines_of(made.attribute(labels, comparisons=(*steps, *one.comparisons))))
    assert said.count("4.52x [0.93, 24.36]") == 10
    assert "all: FASTER, 2.43x [2.39, 2.47]" in said


def caveats() -> dict[str, Result]:
    seen = Check(
        gate="P4", quantity="held-out loss", observed=0.1, bound=0.2, ok=True, detail="behavioural: " + "2.1 " * 49
    )
    kind = Parity(
        arm="b.yaml", against="a.yaml", kind="behavioural", state="behavioural", why_not_checked="no rows are held out"
    )
    vague = tuple(one.model_copy(update={"verdict": Verdict.UNRESOLVED}) for one in made.sweep().comparisons)
    return {
        "held-out loss": made.ab(parity=(kind.model_copy(update={"checks": (seen,)}),)),
        "not held out": made.ab(parity=(kind,)),
        "not resolved": made.sweep(comparisons=vague),
        "not checked": made.ab(parity=()),
    }


@pytest.mark.parametrize("make", [*made.EVERY.values()], ids=[*made.EVERY])
def test_the_closing_sentence_stands_whole(make: Callable[..., Result]) -> None:
    assert closing(make()) in whole(lines_of(make()))


@pytest.mark.parametrize("caveat", caveats())
@pytest.mark.parametrize("width", [60, 80, 140])
def test_its_caveat_stands_also_where_all_else_is_long(caveat: str, width: int) -> None:
    result = caveats()[caveat].model_copy(update={"notes": tuple(f"note {i} " + "word " * 60 for i in range(40))})
    said = whole(lines_of(result, width))
    assert closing(result) in said
    assert "on the page" in said
