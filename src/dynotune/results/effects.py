"""What speed-ups were measured to gain here: the newest effect of each in the history, for the table of speed-ups.

Of the same machine with its versions, the same kind of work on a model of this size, the same definitions. What was
withdrawn, suspect, left unresolved or measured without the speed-up being engaged is no effect. Nor is one of updates that
nobody compared, which may be the gain of another calculation, nor one of fewer pairs than signs tell 95 % of.
"""

import math
from collections.abc import Iterator
from functools import cache

from dynotune.measure.words import DEFINITIONS
from dynotune.results.comparable import SETTING, asked_about, leave_with, parity_of, why_not
from dynotune.results.history import History
from dynotune.results.result import Comparison, Result, Verdict
from dynotune.speedups.machine import Machine
from dynotune.speedups.table import Effect, EffectOf

MOST = 10
"""The newest results that are read: a run begins with it."""

PAIRS = 6
"""That an effect is made of at least: the interval of fewer rests on noise being normal (`dynotune.bench.statistics`)."""

SIZES_APART = 0.1
"""Share of the parameters by which two models of one architecture may differ, by new tokens or an adapter's rank: a speed-up
gains another share of the steps of a smaller one."""

SHARED = "shared_prompt"

_ROLES = ("last", "step", "alone", "whole")
"""What adding it to all others gains comes first: that is how runs use it."""


def effects_of(machine: Machine, work: str, parameters: int, history: History | None = None) -> EffectOf:
    """By name of a speed-up its newest effect, or None. work, parameters: as in `Context`. The history is read at the first
    question."""

    @cache
    def found() -> dict[str, Effect]:
        effects: dict[str, Effect] = {}
        for result in (history or History()).newest(machine, work, DEFINITIONS, MOST):
            theirs = result.model.get("parameters")
            if not isinstance(theirs, int) or not math.isclose(theirs, parameters, rel_tol=SIZES_APART):
                continue
            for name, effect in _effects(result):
                effects.setdefault(name, effect)
        return effects

    return lambda name: found().get(name)


def _effects(result: Result) -> Iterator[tuple[str, Effect]]:
    if result.withdrawn is not None:
        return
    for role in _ROLES:
        for one in result.comparisons:
            if one.role == role and (found := _effect(result, one)) is not None:
                yield found


def _effect(result: Result, one: Comparison) -> tuple[str, Effect] | None:
    measured = (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME)
    if one.ratio is None or one.ratio.low <= 0 or one.verdict not in measured or why_not(result, one) is not None:
        return None
    if leave_with(result, one):
        return None  # what the others gain is in it
    parity = parity_of(result, *asked_about(result, one))
    if parity is None or parity.state == "not checked" or len(one.log_ratios) < PAIRS:
        return None
    name, inverted = one.label.removeprefix(SETTING), False
    if one.role == "whole":
        settled = _single_setting(result, one)
        if settled is None:
            return None
        name, inverted = settled
    with_it = result.arm(one.against if inverted else one.arm)
    if name == SHARED and not all(block.sequence_tokens for block in with_it.counted):
        return None  # by tokens that were computed, of which it has fewer for the same work
    if any(seen.name == name and seen.state not in ("engaged", "partial") for seen in with_it.engaged):
        return None
    low, middle, high = one.ratio.low, one.ratio.estimate, one.ratio.high
    if inverted:
        low, middle, high = 1 / high, 1 / middle, 1 / low
    return name, Effect(middle, low, high, result.name, result.date)


def _single_setting(result: Result, one: Comparison) -> tuple[str, bool] | None:
    """The speed-up in which alone two configurations differ, and whether it is the second that lacks it.

    Any key with `off` on one side will do: nobody asks for the effect of one that is no speed-up's name.
    """
    first, arm = result.arms[0], result.arm(one.arm)
    if one.against != first.name or len(arm.settings) != 1:
        return None
    [(key, value)] = arm.settings.items()
    name, own = key.removeprefix(SETTING), first.config.get("speedups")
    before = own.get(name, "auto") if key != name and isinstance(own, dict) else first.config.get(key, "auto")
    if (value == "off") == (before == "off"):
        return None
    return name, value == "off"
