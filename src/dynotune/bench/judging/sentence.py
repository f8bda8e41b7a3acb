"""The closing sentence of a bench: what a reader may repeat, and no more."""

import re

from dynotune.bench.asking.schedule import unit_of
from dynotune.printable import printable
from dynotune.results import phrases
from dynotune.results.comparable import hidden, kind_in_words, label_of_kind, leave_with, parity_of, why_not
from dynotune.results.result import OUT_OF_MEMORY, Arm, Comparison, MemoryVerdict, Result, Verdict

BETWEEN_SETTINGS = re.compile(r", (?=[\w.]+: )")
NAME = 60
"""Characters of an arm's name that are shown."""


def closing(result: Result) -> str:
    """One sentence of the whole, made of the comparisons: no ratio where something is not comparable.

    A sweep asks which arm is fastest, all others how the changed arm stands to its baseline.
    """
    if result.unfinished:
        return f"UNFINISHED: {printable(result.unfinished, 300)}. Nothing was compared, and nothing is claimed."
    wholes = [one for one in result.comparisons if one.role == "whole"]
    if result.kind == "attribute" and not wholes:
        return _of_changes(result)
    if result.kind == "sweep" or not wholes:
        return _of_arms(result)
    if len(wholes) == 1:
        return _of_one(result, wholes[0])
    return "; ".join(_in_short(result, one) for one in wholes) + "."


def _of_one(result: Result, one: Comparison) -> str:
    arm, other, trains = name(one.arm), name(one.against), "trains"
    if result.kind in ("ladder", "attribute"):
        count = len({each.label for each in result.comparisons if each.role in ("alone", "last", "step")})
        if count > 1:  # of a single change there is nothing but the whole
            arm, trains = "both changes together" if count == 2 else f"all {count} changes together", "train"
    failed = next((a for a in result.arms if a.name in (one.arm, one.against) and a.failed), None)
    if failed is not None:
        return f"{name(failed.name)} could not be measured: {printable(failed.failed or '', 100)}."
    why = why_not(result, one)
    if why is not None:
        return f"{arm} and {other} are not comparable: {why}."
    if one.ratio is None:
        return f"{arm} was not compared with {other}{f': {_reason(one)}' if one.why else ''}."
    speed, kind = phrases.ratio(one.ratio), label_of_kind(result, one.arm, one.against)
    of_kind = f"{speed} ({kind})" if kind else speed
    match one.verdict:
        case Verdict.SUSPECT:
            return f"No claim for {arm}: {of_kind} is suspect, {_reason(one)}."
        case Verdict.UNRESOLVED:
            return f"Whether {arm} {trains} faster than {other} is not resolved: {of_kind}{_needs(one, result)}."
        case Verdict.SAME:
            text = f"{arm} {trains} as fast as {other}: {phrases.NO_EFFECT} beyond 1 %, {speed}"
        case _:
            text = f"{arm} {trains} {speed} as fast as {other}"
    return f"{text}{_updates(result, one)}{_memory(one)}{_pays(one)}."


def _in_short(result: Result, one: Comparison) -> str:
    failed = next((arm for arm in result.arms if arm.name == one.arm and arm.failed), None)
    if failed is not None:
        return f"{name(one.arm)}: {printable(failed.failed or '', 60)}"
    why = why_not(result, one)
    if why is not None:
        return f"{name(one.arm)}: not comparable: {why}"
    speed = "" if one.ratio is None else f" {phrases.ratio(one.ratio)} as fast as {name(one.against)}"
    kind = kind_in_words(result, one.arm, one.against)
    return f"{name(one.arm)}: {one.verdict}{speed}" + (f" ({kind})" if kind else "")


def _of_changes(result: Result) -> str:
    """Where each change is left out of everything and the base is no arm: which gains most, and how the others stand."""
    count = len({one.label for one in result.comparisons})
    by_gain = sorted(
        (one for one in result.comparisons if one.verdict is Verdict.FASTER and why_not(result, one) is None),
        key=lambda one: one.ratio.estimate if one.ratio else 0.0,
    )
    others = [(word, sum(one.verdict is word for one in result.comparisons)) for word in (*Verdict, None)]
    rest = [f"{n} {word or 'not measured'}" for word, n in others if n and word is not Verdict.FASTER]
    text = f"Of {count} changes none is seen to gain anything as the last one"
    if by_gain and (best := by_gain[-1]).ratio:
        kind = kind_in_words(result, best.arm, best.against)
        gain = "gains" if len(by_gain) == 1 else "gain"
        text = f"Of {count} changes {len(by_gain)} {gain} as the last one, most of all {name(best.label)}"
        with_it = leave_with(result, best)
        text += (
            f" with the {len(with_it)} that need it" if len(with_it) > 1 else f" with {with_it[0]}" if with_it else ""
        )
        text += f": {phrases.ratio(best.ratio)}" + (f" ({kind})" if kind else "")
    text += f"; {', '.join(rest)}" if rest else ""
    return f"{text}{'' if result.parity else '; whether the updates are the same was not checked'}."


def _of_arms(result: Result) -> str:
    shut = hidden(result)
    measured = [
        (arm, value) for arm in result.arms if arm.name not in shut and (value := _rate(result, arm)) is not None
    ]
    failed = [arm for arm in result.arms if arm.failed]
    if not measured:
        return "No arm could be measured." if failed else "No speed is shown: no arm is comparable."
    best, value = max(measured, key=lambda pair: pair[1])
    kind = kind_in_words(result, best.name)
    text = f"{name(best.name)} had the most tokens a second, {phrases.rate(value)} a device"
    text += f" ({kind})" if kind else ""
    if len(measured) > 1:
        text += f", of {len(measured)} arms that could be measured{_not_resolved(result, best)}"
    if failed:
        out = sum(arm.failure == OUT_OF_MEMORY for arm in failed)
        counted = [f"{out} ran out of memory"] if out else []
        counted += [f"{len(failed) - out} failed"] if len(failed) > out else []
        text += "; " + ", ".join(counted)
    return f"{text}."


def _not_resolved(result: Result, best: Arm) -> str:
    """Beside whom it may have had the most by chance: arms are compared with the first one."""
    open_ones = [one for one in result.comparisons if one.verdict is Verdict.UNRESOLVED]
    beside = [one.against for one in open_ones if one.arm == best.name]
    beside += [one.arm for one in open_ones if one.against == best.name]
    if not beside:
        return ""
    return f"; that it is faster than {name(beside[0]) if len(beside) == 1 else 'the others'} is not resolved"


def _rate(result: Result, arm: Arm) -> float | None:
    """Of one of its devices."""
    value = None if arm.failed else arm.per_second("tokens")
    return None if value is None else value / result.devices_of(arm)


def _updates(result: Result, one: Comparison) -> str:
    kind = label_of_kind(result, one.arm, one.against)
    if kind == "behavioural":
        return f", with other updates ({kind_in_words(result, one.arm, one.against)})"
    parity = parity_of(result, one.arm, one.against)
    if parity is None or parity.state == "not checked":
        return "; whether the updates are the same was not checked"
    return " with the same updates" + (
        f" within lower precision ({kind_in_words(result, one.arm, one.against)})" if kind else ""
    )


def _memory(one: Comparison) -> str:
    if one.memory in (None, MemoryVerdict.SAME) or one.memory_ratio is None:
        return ""
    return f", in {one.memory_ratio:.2f}x the memory"


def _pays(one: Comparison) -> str:
    steps = one.pays_back_after_steps
    return "" if not steps or steps < 1 else f"; compilation pays back after {steps:,.0f} steps"


def _needs(one: Comparison, result: Result) -> str:
    if not one.needs_more_pairs:
        return f"; {printable(one.why, 160)}" if one.why else ""
    seconds = one.needs_more_seconds
    unit = unit_of(gpu=result.model.get("device") != "CPU")
    took = f" ({seconds:,.0f} {unit})" if seconds is not None and seconds >= 1 else ""
    return f", needs about {one.needs_more_pairs:,} more pairs{took}"


def _reason(one: Comparison) -> str:
    if one.why:
        return printable(one.why, 160)
    return "above the most that it can gain" + ("" if one.ceiling is None else f", {one.ceiling:.2f}x")


def of_change(result: Result, one: Comparison) -> str:
    """Its label, with what of the change is meant where several are measured: `packing alone`."""
    parts = {"alone": " alone", "last": " added last", "interaction": " interaction"}
    if any(other.role in parts for other in result.comparisons):
        parts["step"] = " as a step"
    return name(one.label) + parts.get(one.role, "")


def name(text: str) -> str:
    """Of an arm, as it may be shown: of many settings the first, and their number."""
    settings = BETWEEN_SETTINGS.split(text)
    if len(text) > NAME and len(settings) > 2:
        text = f"{settings[0]} and {len(settings) - 1} more"
    return printable(text, NAME)
