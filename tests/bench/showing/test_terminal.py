"""Promise: a result fits on 25 lines at any width, says all that its kind must say, and shows no speed that may not be."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from dynotune.bench.judging.sentence import closing
from dynotune.bench.showing.grids import ROLES
from dynotune.bench.showing.markdown import markdown
from dynotune.bench.showing.shown import shown
from dynotune.bench.showing.terminal import LINES, screen, show
from dynotune.results.phrases import gain, holds_one, ratio
from dynotune.results.result import Check, Expectation, Interval, Parity, Result, Verdict
from dynotune.show.markdown import escaped
from dynotune.show.terminal import cropped
from tests.bench import made

WIDTHS = (80, 100, 140)
RATIO = re.compile(r"\d\.\d+x|[+-]\d+(\.\d+)? %")


def text(result: Result, width: int = 140) -> str:
    return "\n".join(line.plain for line in screen(result, width, ["bench.json", "bench.html"]))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", made.EVERY.values(), ids=made.EVERY)
def test_a_result_fits_on_the_screen(make: Callable[..., Result], width: int) -> None:
    lines = screen(make(), width, ["bench.json", "bench.html"])
    assert len(lines) <= LINES
    assert max(cell_len(line.plain) for line in lines) <= width
    assert lines[-1].plain == "written: bench.json, bench.html"
    long = "benches/20261123-125617-sft-packed-execution-off-and-more-of-that"
    kept = "/root/.cache/dynotune/benches/nvidia-h200-2133b21c4f2c/sft-of-llamaforcausallm-under-lora"
    end = screen(make(), 80, [*(f"{long}/bench.{kind}" for kind in ("json", "md", "html")), f"{kept}/2026-11-23.json"])
    assert len(end) <= LINES
    said = "".join(line.plain for line in end).partition("written: ")[2].replace(" ", "")
    assert said == f"bench.json,bench.md,bench.htmlin{long};2026-11-23.jsonin{kept}", "cut off it leads nowhere"


@pytest.mark.parametrize("width", [40, *WIDTHS])
def test_a_long_result_keeps_what_must_not_give_way(width: int) -> None:
    many = tuple((f"change_{i}_with_a_long_name", 1.1, 1.05, -0.5) for i in range(40))
    long = made.attribute(
        many,
        notes=tuple(f"note {i} " + "word " * 60 for i in range(40)),
        differences=tuple(f"difference {i} " + "word " * 60 for i in range(40)),
        expectations=tuple(Expectation(text=f"speed>={i}", observed="2.43x", met=i > 2) for i in range(40)),
    )
    lines = [line.plain for line in screen(long, width, ["bench.json"])]
    assert len(lines) <= LINES
    assert max(map(cell_len, lines)) <= width
    shown = "\n".join(lines)
    assert "on the page" in shown
    assert "changes together" in shown
    assert width < 80 or ("alone" in shown and "NOT MET" in shown)


def test_what_each_kind_must_say() -> None:
    said = text(made.ab())
    for words in (
        "noise floor (A/A) ±0.3 %",
        "warm-up 11 steps",
        "one process, switched",
        "8 pairs x 5 steps",
        "clocks equal",
        "b.yaml: FASTER, 1.07x [1.06, 1.08]",
        "LESS MEMORY 0.81x",
        "engaged: a.yaml 1 of 1",
        "\nMET: expected speed>=1.05, observed 1.07x [1.06, 1.08]",
        "NOT MET: expected peak<=0.8, observed 0.81x",
        "b.yaml trains 1.07x [1.06, 1.08] as fast as a.yaml with the same updates",
        "7.9 % of the tokens",
    ):
        assert words in said
    assert "no measured effect: flash_attention" in text(made.attribute())
    assert re.search(r"64/64 +\+6.2 % \[5.8, 6.6\] +\+4.9 % \[4.5, 5.3\]", text(made.attribute(), 80))
    assert "maths: same in all" in text(made.attribute(), 80)
    assert "same (gradient 4e-7)" in text(made.attribute())
    swept = text(made.sweep())
    assert "out of memory at 65,536 tokens" in swept
    assert "1 ran out of memory" in swept.replace("\n", " ")
    assert "SUSPECT" in text(made.suspect())
    assert "No claim for b.yaml" in text(made.suspect())
    assert text(made.withdrawn()).startswith("WITHDRAWN on 2026-11-23: its tokens counted padding")
    assert "2026-11-23-101500-ab" in text(made.withdrawn())


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_not_comparable_has_no_speed_anywhere(width: int) -> None:
    """Its ratio stands in the file, and in an expectation."""
    result = made.not_comparable(expectations=(Expectation(text="speed>=1.05", observed="1.77x", met=True),))
    for page in (text(result, width), markdown(result), closing(result)):
        assert "not comparable: label tokens: 812 against 790" in page or page == closing(result)
        assert "label tokens: 812 against 790" in page
        assert not RATIO.search(page)
        assert "15,020" not in page  # the arm's own rate, beside the other's, would be the ratio
    assert "NOT MET" in text(result, width)
    assert RATIO.search(text(made.ab(), width))  # negative control


def test_a_gate_that_says_differs_hides_a_speed_that_the_verdict_forgot() -> None:
    differs = made.not_comparable().parity
    assert not RATIO.search(text(made.ab(parity=differs, expectations=())).replace("±0.3 %", ""))


@pytest.mark.parametrize("verdict", [Verdict.FASTER, Verdict.SAME, Verdict.UNRESOLVED, Verdict.SUSPECT])
def test_behavioural_stands_on_every_line_that_quotes_the_speed(verdict: Verdict) -> None:
    kind = (Parity(arm="b.yaml", against="a.yaml", kind="behavioural", state="behavioural"),)
    [one] = made.ab().comparisons
    result = made.ab(
        parity=kind, expectations=(), comparisons=(one.model_copy(update={"verdict": verdict, "why": "so it is"}),)
    )
    for page in (text(result), markdown(result)):
        quoting = [line for line in page.splitlines() if RATIO.search(line) and "b.yaml" in line]
        assert len(quoting) == 3
        assert all("behavioural" in line for line in quoting)


@pytest.mark.parametrize("seen", [True, False])
def test_what_is_known_of_the_held_out_loss_stands_beside_the_speed(seen: bool) -> None:
    check = Check(
        gate="P4",
        quantity="held-out loss",
        observed=0.1,
        bound=0.2,
        ok=True,
        detail="behavioural: 2.1 against 2.0, 3 seeds",
    )
    kind = Parity(
        arm="b.yaml", against="a.yaml", kind="behavioural", state="behavioural", checks=(check,) if seen else (),
        why_not_checked="" if seen else "no rows are held out",
    )  # fmt: skip
    one = made.ab(parity=(kind,))
    known = "behavioural: held-out loss 2.1 against 2.0, 3 seeds"
    unknown = "behavioural: held-out loss not measured, because no rows are held out; `--parity full` measures it"
    assert (known if seen else unknown) in closing(one)
    assert (known if seen else unknown) in " ".join(line.text for line in shown(one).said)


@pytest.mark.parametrize("width", WIDTHS)
def test_behavioural_stands_in_every_row_of_changes(width: int) -> None:
    kinds = tuple(p.model_copy(update={"kind": "behavioural", "state": "behavioural"}) for p in made.attribute().parity)
    said = text(made.attribute(parity=kinds), width).splitlines()
    rows = [line for line in said if "64/64" in line]
    assert len(rows) == 3
    assert all("behavioural" in row and row.count("]") == 2 for row in rows)


def test_an_exact_change_beside_a_behavioural_one_is_not_called_so() -> None:
    """What is added last is named by the gate of the change alone, though both arms have the other. Control: that one."""
    both = made.attribute()
    fused = {one.arm for one in both.comparisons if (one.label, one.role) == ("fused_lora", "alone")} | {"all"}
    kinds = tuple(
        one.model_copy(update={"kind": "behavioural", "state": "behavioural"}) if one.arm in fused else one
        for one in both.parity
    )
    rows = {
        row[0].text: " ".join(cell.text for cell in row[2:4]) for row in shown(made.attribute(parity=kinds)).grid.rows
    }
    assert [name for name, said in rows.items() if "behavioural" in said] == ["fused_lora"]


@pytest.mark.parametrize("width", [40, *WIDTHS])
def test_what_is_not_met_says_so_before_it_is_cut(width: int) -> None:
    long = Expectation(
        text="speed>=1.2", observed="no single comparison: name an arm before a colon, of many", met=None
    )
    assert "NOT MET" in text(made.ab(expectations=(long,)), width)


def test_who_had_the_most_of_a_sweep_is_no_claim_where_it_is_not_resolved() -> None:
    """Control: where it is."""
    said = "; that it is faster than per_device_train_batch_size=1 is not resolved"
    sweep = made.sweep()
    assert said not in closing(sweep)
    vague = tuple(one.model_copy(update={"verdict": Verdict.UNRESOLVED}) for one in sweep.comparisons)
    assert said in closing(sweep.model_copy(update={"comparisons": vague}))


def test_both_walks_stand_in_one_table() -> None:
    """Controls: a ladder alone has no other column, and its steps need no word that tells them apart."""
    both, ladder, attribute = (shown(make()) for make in (made.attribute_on_a_ladder, made.ladder, made.attribute))
    assert [one for one in both.grid.head if one in ROLES.values()] == ["alone", "added last", "this step"]
    assert "this step" not in attribute.grid.head
    assert "alone" not in ladder.grid.head
    steps = [row[both.grid.head.index("this step")].text for row in both.grid.rows]
    assert steps == [row[ladder.grid.head.index("this step")].text for row in ladder.grid.rows]
    unresolved = " ".join(line.text for line in both.said if line.text.startswith("UNRESOLVED"))
    assert "as a step" in unresolved or not unresolved
    assert not any("as a step" in line.text for line in ladder.said)


def test_a_failed_arm_is_a_row_and_a_sentence() -> None:
    result = made.ab(arms=(made.arm("a.yaml", 14_000), made.out_of_memory()), expectations=())
    assert "b.yaml could not be measured: out of memory at 65,536 tokens." in text(result)
    assert "1.07x" not in text(result)


NASTY = "\x1b[2J[bold red]x[/]\r\n\u202e</td><script>alert(1)</script>|`*_ @team](http://x)"


def nasty() -> Result:
    """Escape sequences and markup wherever somebody else's text can stand."""
    arms = (made.arm("a.yaml", 14_000), made.arm(NASTY, 15_000, settings={NASTY: NASTY}, said=(NASTY,)))
    return made.ab(
        arms=arms,
        comparisons=(made.compared(NASTY, "a.yaml", NASTY, "whole", 1.07),),
        parity=(made.same(NASTY, "a.yaml"),),
        operating_point=NASTY,
        notes=(NASTY,),
        differences=(NASTY,),
        command=NASTY,
        commit=NASTY,
        model={"name": NASTY},
        machine={**made.MACHINE, "device": NASTY, "packages": {NASTY: NASTY}},
        expectations=(Expectation(text=NASTY, observed=NASTY, met=None),),
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_no_text_of_others_commands_the_terminal(width: int) -> None:
    console = Console(width=width, record=True, force_terminal=False, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    show(nasty(), console, [NASTY])
    said = console.export_text()
    assert all(character.isprintable() or character == "\n" for character in said)
    assert "[bold red]x[/]" in said  # as it stands, not as a colour
    assert len(said.splitlines()) <= LINES


def test_no_text_of_others_is_markup_in_a_pull_request() -> None:
    said = markdown(nasty(), [NASTY])
    outside = said.split("```")[0]
    for mark in ("<script", "</td>", "http://", " @team"):
        assert mark not in outside
    assert not re.search(r"(?<!\\)\]\(", outside)
    assert "&#64;team" in outside
    rows = [line for line in outside.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    assert "\x1b" not in said


@given(st.text(max_size=50), st.integers(4, 40))
def test_a_cropped_name_fits(name: str, columns: int) -> None:
    assert cell_len(cropped(name, columns)) <= max(columns, 4)


@given(st.floats(0.01, 50), st.floats(0, 2))
@settings(max_examples=200)
def test_a_gain_says_the_side_on_which_its_interval_lies(estimate: float, half: float) -> None:
    interval = Interval(low=max(1e-3, estimate - half), estimate=estimate, high=estimate + half)
    assert "-0 " not in gain(interval)
    assert "-0.0" not in gain(interval).replace("-0.0 % [", "!") or estimate < 1
    assert f"{estimate:.2f}x" in ratio(interval) or f"{estimate:.3f}x" in ratio(interval)
    assert holds_one(interval) == (interval.low <= 1 <= interval.high)


@pytest.mark.parametrize(
    ("low", "estimate", "high", "words"),
    [
        (1.058, 1.062, 1.066, "+6.2 % [5.8, 6.6]"),
        (0.998, 1.002, 1.006, "+0.2 % [-0.2, 0.6]"),
        (0.964, 0.969, 0.974, "-3.1 % [-3.6, -2.6]"),
        (2.39, 2.43, 2.47, "2.43x [2.39, 2.47]"),
        (0.9, 1.3, 1.7, "+30 % [-10, 70]"),
        (0.9998, 1.0, 1.0002, "0.0 % [0.0, 0.0]"),
    ],
)
def test_gains_in_words(low: float, estimate: float, high: float, words: str) -> None:
    assert gain(Interval(low=low, estimate=estimate, high=high)) == words


def halved(*labels: str, **parts: Any) -> Result:
    """The half of an attribution that leaves the base out."""
    both = made.attribute()
    last = (one for one in both.comparisons if one.role == "last" and (not labels or one.label in labels))
    return made.attribute(comparisons=tuple(last), **parts)


def closings() -> list[Any]:
    several = (
        made.compared("b.yaml", "a.yaml", "b.yaml", "whole", 1.07),
        made.compared("c.yaml", "a.yaml", "c.yaml", "whole", 0.9),
    )
    third = (made.arm("a.yaml", 14_000), made.arm("b.yaml", 15_000), made.arm("c.yaml", 12_600))
    slow = (made.compared("b.yaml", "a.yaml", "b.yaml", "whole", 0.9),)
    even = (made.compared("b.yaml", "a.yaml", "b.yaml", "whole", 1.0),)
    return [
        (made.ab(comparisons=slow), "b.yaml trains 0.900x [0.896, 0.904] as fast as a.yaml with the same updates."),
        (made.ab(comparisons=even), "b.yaml trains as fast as a.yaml: no measured effect beyond 1 %, 1.000x"),
        (made.ab(parity=()), "whether the updates are the same was not checked"),
        (
            made.ab(arms=third, comparisons=several),
            "b.yaml: FASTER 1.070x [1.066, 1.074] as fast as a.yaml; c.yaml: SLOWER",
        ),
        (made.attribute(), "all 3 changes together train 2.43x [2.39, 2.47] as fast as base with the same updates"),
        (halved(), "Of 3 changes 2 gain as the last one, most of all packed_execution: 2.190x [2.186, 2.194]; 1 SAME."),
        (halved(parity=()), "; 1 SAME; whether the updates are the same was not checked."),
        (
            halved("flash_attention", "fused_lora"),
            "Of 2 changes 1 gains as the last one, most of all fused_lora: 1.049x",
        ),
        (made.sweep(), "`--parity full` measures it), of 3 arms that could be measured; 1 ran out of memory."),
    ]


def test_who_leaves_with_a_change_is_said_of_its_figure() -> None:
    """Of results in which a change was left out with those that need it. Control: where arms differ in one speed-up."""
    both = made.attribute()

    def with_settings(out: dict[str, list[str]]) -> Result:
        settings = {f"all but {name}": {f"speedups.{one}": "off" for one in names} for name, names in out.items()}
        return halved(arms=tuple(arm.model_copy(update={"settings": settings.get(arm.name, {})}) for arm in both.arms))

    alone = {name: [name] for name, *_ in made.CHANGES}
    several = with_settings({**alone, "packed_execution": ["packed_execution", "fused_lora", "flash_attention"]})
    said = "Added last, a change has with it those that need it: packed_execution (flash_attention, fused_lora)."
    assert said in shown(several).notes
    assert "most of all packed_execution with the 2 that need it: 2.190x" in closing(several)
    assert not any("has with it" in note for note in shown(with_settings(alone)).notes)
    assert "packed_execution: 2.190x" in closing(with_settings(alone))


@pytest.mark.parametrize(("result", "words"), closings(), ids=range(9))
def test_the_closing_sentence(result: Result, words: str) -> None:
    assert words in closing(result)


@pytest.mark.parametrize(
    ("label", "seen"),
    [
        ("flash_attention", "64/64"),
        ("speedups.flash_attention=auto", "64/64"),
        ("use_liger_kernel=true", "64/64"),
        ("learning_rate=1e-3", "64/64"),
        ("speedups.another=auto", "unknown"),
        ("another", "unknown"),
    ],
)
def test_a_change_written_as_a_key_shows_what_of_it_was_seen(label: str, seen: str) -> None:
    """Of a speed-up its own places; of another key those of all speed-ups that its arm has and the one below it has not."""
    ladder = made.ladder()
    steps = [one.model_copy(update={"label": label}) if one.role == "step" else one for one in ladder.comparisons]
    rows = shown(ladder.model_copy(update={"comparisons": tuple(steps)})).grid.rows
    assert rows[-1][1].text == seen


def test_a_speed_up_that_is_taken_out_is_off_and_not_unknown() -> None:
    """Control: one that was to be seen and was not."""
    ladder = made.ladder()
    for label, cell in (("speedups.prefetch=off", "off"), ("speedups.prefetch=on", "unknown"), ("prefetch", "unknown")):
        steps = tuple(one.model_copy(update={"label": label}) for one in ladder.comparisons if one.role == "step")
        assert {row[1].text for row in shown(ladder.model_copy(update={"comparisons": steps})).grid.rows} == {cell}


def test_a_key_that_brings_no_speed_up_has_nothing_to_be_seen() -> None:
    ladder = made.ladder()
    arms = tuple(arm.model_copy(update={"engaged": ladder.arms[-1].engaged}) for arm in ladder.arms)
    steps = [one.model_copy(update={"label": f"key={i}"}) for i, one in enumerate(ladder.comparisons)]
    grid = shown(ladder.model_copy(update={"arms": arms, "comparisons": tuple(steps)})).grid
    assert {row[1].text for row in grid.rows} == {""}


def test_a_large_noise_floor_is_a_plain_number() -> None:
    one = made.ab()
    assert one.noise is not None
    wide = one.model_copy(update={"noise": one.noise.model_copy(update={"floor": 1.234})})
    assert "noise floor (A/A) ±123 %" in text(wide)


def test_the_rung_of_a_ladder_is_no_list_in_a_list() -> None:
    """`- + fused_lora makes ...` would be a list of its own, without its plus. Control: a gain stays as it is."""
    assert escaped("+ fused_lora makes other updates") == "\\+ fused_lora makes other updates"
    assert escaped("+6.2 % [5.8, 6.6]") == "+6.2 % [5.8, 6.6]"
