"""What is shown of a result, in words: the same on the terminal, in Markdown and on the page, so that none can say more.

Text of others (names of arms, settings, models, notes) is escaped here, once.
"""

from dataclasses import dataclass

from dynotune.bench.judging.sentence import closing, name, of_change
from dynotune.bench.showing.grids import MOST, arms, changes, count
from dynotune.printable import printable
from dynotune.results import phrases
from dynotune.results.comparable import hidden, kind_in_words, leave_with, why_not
from dynotune.results.result import Comparison, Expectation, MemoryVerdict, Result, Verdict
from dynotune.show.grids import Grid, Line, Tone

TEXT = 400
"""Characters of a sentence that are shown."""


@dataclass(frozen=True, slots=True)
class Shown:
    """From top to bottom."""

    withdrawn: str
    operating_point: str
    conditions: tuple[str, ...]
    engagement: Line | None
    grid: Grid
    said: tuple[Line, ...]
    """Verdicts, and what is behind an empty cell."""

    of_the_whole: int
    """How many of these, the first ones, are verdicts of whole arms."""

    differences: tuple[str, ...]
    notes: tuple[str, ...]
    sample: str
    expectations: tuple[Line, ...]
    sentence: str


def shown(result: Result) -> Shown:
    """Everything, whatever room there is for it."""
    by_change = result.kind in ("ladder", "attribute") and any(one.role != "whole" for one in result.comparisons)
    return Shown(
        withdrawn=_withdrawn(result),
        operating_point=printable(result.operating_point, TEXT),
        conditions=tuple(_conditions(result)),
        engagement=None if by_change else _engagement(result),
        grid=changes(result) if by_change else arms(result),
        said=tuple(_said(result))[:MOST],
        of_the_whole=len(_of_the_whole(result)),
        differences=_texts(result.differences),
        notes=_texts(
            (
                *((result.noise.note,) if result.noise is not None and result.noise.note else ()),
                *_who_leaves(result),
                *result.notes,
            )
        ),
        sample="" if result.sample is None else printable(result.sample.sentence, TEXT),
        expectations=tuple(_expected(one, shut=bool(hidden(result))) for one in result.expectations[:MOST]),
        sentence=closing(result),
    )


def _who_leaves(result: Result) -> list[str]:
    """Of changes that are added last, which others are in the same figure."""
    told = [(one.label, leave_with(result, one)) for one in result.comparisons if one.role == "last"]
    named = [(name(label), [*map(name, others)]) for label, others in told if others]
    each = [f"{label} ({', '.join(others) if len(others) < 4 else f'{len(others)} others'})" for label, others in named]
    return [f"Added last, a change has with it those that need it: {'; '.join(each)}."] if each else []


def _texts(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(printable(text, TEXT) for text in texts[:MOST])


def _withdrawn(result: Result) -> str:
    if result.withdrawn is None:
        return ""
    one = result.withdrawn
    text = f"WITHDRAWN on {printable(one.date[:10])}: {printable(one.why, TEXT)}"
    if not one.corrected_by:
        return f"{text} (there is no correction yet)"
    return f"{text}. What holds instead: {name(one.corrected_by)}"


def _conditions(result: Result) -> list[str]:
    """Noise floor, warm-up, tier, pairs and clocks, a few words each."""
    counted = [block for arm in result.arms for block in arm.counted]
    said = []
    if result.noise is not None:
        floor = 100 * result.noise.floor
        text = f"noise floor (A/A) ±{floor:.2g} %" if floor < 10 else f"noise floor (A/A) ±{floor:.0f} %"
        caveat = printable(result.noise_caveat, TEXT).removeprefix("noise floor ")
        said.append(f"{text} {caveat}".strip())
    else:
        said.append(printable(result.noise_caveat, TEXT) or "noise floor not measured")
    warm = [arm.warm_up for arm in result.arms if arm.warm_up is not None]
    if warm:
        longest = max(warm, key=lambda one: one.steps)
        level = "" if all(one.stationary for one in warm) else ", NOT STATIONARY"
        said.append(f"warm-up {longest.steps} steps{level}")
    said.append(result.tier.value)
    if counted:
        steps = f" x {result.steps_a_block} steps" if result.steps_a_block else ""
        pairs = len({block.pair for block in counted})
        said.append(f"{pairs} pair{'s' * (pairs != 1)}{steps}")
    void = sum(block.void is not None for arm in result.arms for block in arm.blocks)
    if void:
        said.append(f"{void} block{'s' * (void > 1)} void, measured again")
    said.append(_clocks(result))
    return said


def _clocks(result: Result) -> str:
    means = []
    for arm in result.arms:
        read = [block.clocks.sm_mhz for block in arm.counted if block.clocks.sm_mhz]
        if read:
            means.append(sum(read) / len(read))
    if len(means) < 2:
        return "clocks not read"
    apart = max(means) / min(means) - 1
    return "clocks equal" if apart < 0.005 else f"clocks {100 * apart:.1f} % apart"


def _engagement(result: Result) -> Line | None:
    """Of all arms in a line: how many of a kind, and by name what was not seen everywhere."""
    parts, tone = [], Tone.PLAIN
    for arm in result.arms:
        ran = [one for one in arm.engaged if one.state not in ("left out", "out")]
        if not ran:
            continue
        wanting = [one for one in ran if one.state != "engaged"]
        tone = Tone.BAD if wanting else tone
        names = ", ".join(f"{printable(one.name, 40)} {count(one)}" for one in wanting)
        parts.append(f"{name(arm.name)} {len(ran) - len(wanting)} of {len(ran)}" + (f" ({names})" if names else ""))
    return Line(f"engaged: {'; '.join(parts)}", tone) if parts else None


def _of_the_whole(result: Result) -> list[Line]:
    """Those of a sweep stand in its table."""
    wholes = [one for one in result.comparisons if one.role == "whole" and result.kind != "sweep"]
    return list(dict.fromkeys(_verdict(result, one) for one in wholes))


def _said(result: Result) -> list[Line]:
    lines = _of_the_whole(result)
    lines += [Line(f"{name(arm.name)}: {printable(arm.failed, 160)}", Tone.BAD) for arm in result.arms if arm.failed]
    parts = [one for one in result.comparisons if one.role in ("alone", "last", "step") or result.kind == "sweep"]
    for one in parts:
        why = why_not(result, one)
        if why is not None:
            lines.append(Line(f"{name(one.label)}: not comparable: {why}", Tone.BAD))
        elif one.verdict is Verdict.SUSPECT:
            ceiling = "" if one.ceiling is None else f" (at most {one.ceiling:.2f}x)"
            lines.append(Line(f"{name(one.label)}: SUSPECT: {printable(one.why, 160)}{ceiling}", Tone.BAD))
    open_ones = [one for one in parts if one.verdict is Verdict.UNRESOLVED and why_not(result, one) is None]
    if open_ones:
        needs = ", ".join(f"{of_change(result, one)}{_more(one)}" for one in open_ones)
        lines.append(Line(f"UNRESOLVED: {needs}", Tone.DOUBT))
    carried = _without_effect(result, [one for one in parts if one not in open_ones])
    if carried:
        lines.append(Line(f"{phrases.NO_EFFECT}: {', '.join(carried)}", Tone.QUIET))
    return list(dict.fromkeys(lines))


def _more(one: Comparison) -> str:
    """What would resolve it, or why more pairs would not."""
    if one.needs_more_pairs:
        return f" (needs about {one.needs_more_pairs:,} more pairs)"
    return f" ({one.why})" if one.why else ""


def _without_effect(result: Result, parts: list[Comparison]) -> list[str]:
    """Labels of which every interval that was measured holds zero gain."""
    found = []
    for label in dict.fromkeys(one.label for one in parts):
        mine = [
            one for one in result.comparisons if one.label == label and one.role in ("alone", "last", "step", "whole")
        ]
        ratios = [one.ratio for one in mine]
        shut = any(why_not(result, one) is not None for one in mine)
        if not shut and ratios and all(ratio is not None and phrases.holds_one(ratio) for ratio in ratios):
            found.append(name(label))
    return found


def _verdict(result: Result, one: Comparison) -> Line:
    """`b.yaml: FASTER, 1.07x [1.06, 1.08], LESS MEMORY 0.81x`."""
    arm = name(one.label)
    failed = next((a for a in result.arms if a.name in (one.arm, one.against) and a.failed), None)
    if failed is not None:
        return Line(f"{arm}: not measured, since {name(failed.name)} failed", Tone.BAD)
    why = why_not(result, one)
    if why is not None:
        return Line(f"{arm}: not comparable: {why}", Tone.BAD)
    parts = [str(one.verdict)]
    if one.verdict is Verdict.UNRESOLVED:
        parts = [f"UNRESOLVED{_more(one)}"]
    if one.verdict is Verdict.SUSPECT:
        parts = [f"SUSPECT: {printable(one.why, 160)}"]
    if one.ratio is not None:
        parts.append(phrases.ratio(one.ratio))
        if phrases.holds_one(one.ratio) and one.verdict is Verdict.SAME:
            parts.append(phrases.NO_EFFECT)
    if kind := kind_in_words(result, one.arm, one.against):
        parts.append(kind)
    if one.ratio is not None:
        parts += _ceiling(one)
    if one.median is not None:
        parts.append(f"median {one.median:.3f}x")
    if one.sign_flip_p is not None:
        parts.append(f"sign-flip p {one.sign_flip_p:.2g}")
    if one.memory is not None:
        ratio = "" if one.memory_ratio is None or one.memory is MemoryVerdict.SAME else f" {one.memory_ratio:.2f}x"
        parts.append(f"{one.memory}{ratio}")
    if one.pays_back_after_steps:
        parts.append(f"compilation pays back after {one.pays_back_after_steps:,.0f} steps")
    tones = {Verdict.FASTER: Tone.GOOD, Verdict.SAME: Tone.PLAIN, Verdict.UNRESOLVED: Tone.DOUBT}
    return Line(f"{arm}: {', '.join(parts)}", tones.get(one.verdict, Tone.BAD))


def _ceiling(one: Comparison) -> list[str]:
    """`at most 1.08x, by its share of the step`; that there is none only where it could have said something."""
    if one.ceiling is not None:
        return [f"at most {one.ceiling:.2f}x by what it touches ({phrases.share(one.share)} of the step)"]
    if one.share is not None:
        return ["it may touch all of the step"]
    return [f"no ceiling: {printable(one.no_ceiling, 80)}"] if one.no_ceiling else []


def _expected(one: Expectation, *, shut: bool) -> Line:
    """shut: a speed is hidden, and no expectation may tell it."""
    if shut and not one.text.strip().startswith("peak"):
        return Line(f"NOT MET: expected {printable(one.text, 60)}, observed nothing comparable", Tone.BAD)
    state = "MET" if one.met else "NOT MET" if one.met is False else "NOT MET (not judged)"
    text = f"{state}: expected {printable(one.text, 60)}, observed {printable(one.observed, 80)}"
    return Line(text, Tone.GOOD if one.met else Tone.BAD)


def maths_in_a_line(table: Grid) -> Line:
    """The column `maths` where there is no room for it: one word for all, else those that differ from the first."""
    words = [(row[0].text, row[-1]) for row in table.rows if row[-1].text != "baseline"]
    if not words:
        return Line("")
    said = {word.text.partition(" (")[0] for _, word in words}
    if len(said) == 1:
        return Line(f"maths: {words[0][1].text.partition(' (')[0]} in all", words[0][1].tone)
    bad = next((word.tone for _, word in words if word.tone is Tone.BAD), Tone.DOUBT)
    return Line("maths: " + "; ".join(f"{label} {word.text}" for label, word in words), bad)
