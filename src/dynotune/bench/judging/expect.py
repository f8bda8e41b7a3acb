"""`--expect 'speed>=1.2, peak<=1.05'`: what a bench is asked to show, and whether it does.

A ratio of speeds is an interval, so there are three answers: met where all of it is on the right side, not met where all of
it is on the wrong one, and neither where the target lies inside. The third is not met either, and says so. So is a speed of
which nobody knows what noise makes of it: a bench without a noise floor calls nothing faster, and its targets none met.
"""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from dynotune.bench.judging.comparison import NO_FLOOR
from dynotune.config.checking.problems import did_you_mean
from dynotune.errors import ConfigError
from dynotune.results import phrases
from dynotune.results.comparable import why_not
from dynotune.results.result import Comparison, Expectation, Interval, Result, Verdict

QUANTITIES = {
    "speed": "tokens of documents a second, as a ratio to the baseline",
    "peak": "peak memory allocated, as a ratio to the baseline",
    "mfu": "strict MFU of the arm",
    "fill": "real of processed tokens of the arm",
}

_SIDES: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_TERM = re.compile(
    r"(?:(?P<arm>.+):)?\s*(?P<quantity>[^\s:<>=]+)\s*(?P<side>>=|<=|>|<)\s*(?P<value>[0-9]*\.?[0-9]+)\s*(?P<unit>%|x)?"
)


@dataclass(frozen=True, slots=True)
class Target:
    """One term of `--expect`."""

    text: str
    quantity: str
    side: str
    value: float
    arm: str | None = None
    """None: the one that the bench is about."""


def parse(text: str) -> tuple[Target, ...]:
    """Terms between commas: `speed>=1.2`, `fill>=95%`, `packing: speed>1`. Raises `ConfigError`."""
    terms = [term.strip() for term in text.split(",")]
    if not any(terms):
        raise ConfigError(f"`--expect` is empty. Give for example 'speed>=1.2, peak<=1.05'; {_known()}.")
    return tuple(_target(term) for term in terms if term)


def judge(targets: tuple[Target, ...], result: Result) -> tuple[Expectation, ...]:
    """Each target against what was measured. Raises `ConfigError` where an arm is named that the bench does not have."""
    return tuple(_judge(target, result) for target in targets)


def _target(term: str) -> Target:
    match = _TERM.fullmatch(term)
    if not match:
        raise ConfigError(
            f"`--expect` does not understand '{term}': give a quantity, >=, <=, > or <, and a number, such as 'speed>=1.2'."
        )
    quantity = match["quantity"].lower()
    if quantity not in QUANTITIES:
        raise ConfigError(
            f"`--expect` knows no quantity '{match['quantity']}'.{did_you_mean(quantity, QUANTITIES)} {_known()}."
        )
    if match["unit"] == "x" and quantity not in ("speed", "peak"):
        raise ConfigError(
            f"`--expect` has '{term}', but {quantity} is no ratio of two arms: give a share, such as 50%."
        )
    value = float(match["value"]) / (100 if match["unit"] == "%" else 1)
    return Target(term, quantity, match["side"], value, match["arm"].strip() if match["arm"] else None)


def _known() -> str:
    return "It knows " + ", ".join(f"{name} ({what})" for name, what in QUANTITIES.items())


def _judge(target: Target, result: Result) -> Expectation:
    comparison = _comparison(target, result)
    if comparison is None:
        arms = ", ".join(f"'{arm.name}'" for arm in result.arms[1:])
        return _said(target, f"no single comparison: name an arm before a colon, of {arms}", None)
    if target.quantity == "peak":
        return _of_value(target, comparison.memory_ratio, "x")
    if target.quantity == "fill":
        return _of_value(target, result.arm(comparison.arm).fill, "%")
    if why := why_not(result, comparison):
        return _said(target, f"not comparable: {why}", None)
    if comparison.verdict is Verdict.SUSPECT:
        return _said(target, f"SUSPECT: {comparison.why}", None)
    if target.quantity == "mfu":
        return _of_value(target, result.arm(comparison.arm).mfu, "%")
    if comparison.ratio is None:
        return _said(target, comparison.why or "not measured", None)
    if result.noise is None:
        return _said(target, f"{phrases.ratio(comparison.ratio)}, {result.noise_caveat or NO_FLOOR}", None)
    return _of_interval(target, comparison.ratio)


def _of_interval(target: Target, ratio: Interval) -> Expectation:
    ends = {_SIDES[target.side](end, target.value) for end in (ratio.low, ratio.high)}
    if len(ends) == 1:
        return _said(target, phrases.ratio(ratio), ends.pop())
    return _said(target, f"{phrases.ratio(ratio)}, in which {target.value:g} lies", None)


def _of_value(target: Target, value: float | None, unit: str) -> Expectation:
    if value is None:
        return _said(target, "not measured", None)
    return _said(target, f"{value:.1%}" if unit == "%" else f"{value:.3f}x", _SIDES[target.side](value, target.value))


def _said(target: Target, observed: str, met: bool | None) -> Expectation:
    return Expectation(text=target.text, observed=observed, met=met)


def _comparison(target: Target, result: Result) -> Comparison | None:
    """That of the arm which is named, with the baseline where there is one; else the only one of whole arms."""
    if target.arm is None:
        whole = [one for one in result.comparisons if one.role == "whole"]
        return whole[0] if len(whole) == 1 else None
    names = [arm.name for arm in result.arms]
    if target.arm not in names:
        raise ConfigError(
            f"`--expect` names the arm '{target.arm}'.{did_you_mean(target.arm, names)} This bench has {', '.join(names)}."
        )
    of_arm = [one for one in result.comparisons if one.arm == target.arm and one.role != "interaction"]
    return min(of_arm, key=lambda one: (one.against != names[0], one.role != "whole"), default=None)
