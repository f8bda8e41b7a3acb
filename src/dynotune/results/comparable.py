"""Which speeds of a result may be shown. What is not comparable is hidden wherever it would be shown, by this one rule."""

from dynotune.printable import printable
from dynotune.results.phrases import small
from dynotune.results.result import Comparison, Parity, Result, Verdict

LONGEST = 200
"""Characters of a reason that are shown."""

SETTING = "speedups."
"""Begins the name of a speed-up in an arm's settings."""


def parity_of(result: Result, arm: str, against: str | None = None) -> Parity | None:
    """What the gate said of an arm: against this other one, else against any."""
    found = [one for one in result.parity if one.arm == arm]
    return next((one for one in found if one.against == against), found[0] if found else None)


def why_not(result: Result, comparison: Comparison) -> str | None:
    """Why no speed of this comparison may be shown: the first quantity that differs. None: it may."""
    parity = parity_of(result, comparison.arm, comparison.against)
    differs = parity is not None and parity.state == "differs"
    if comparison.verdict is not Verdict.NOT_COMPARABLE and not differs:
        return None
    why = comparison.why or (parity.first_difference if parity is not None else "")
    return printable(why or "the arms make other updates", LONGEST)


def hidden(result: Result) -> dict[str, str]:
    """Arms whose own rates are hidden too, with the reason: beside the other arm's rate they would be the ratio."""
    found = {
        one.arm: printable(one.first_difference or "it makes other updates", LONGEST)
        for one in result.parity
        if one.state == "differs"
    }
    for comparison in result.comparisons:
        why = why_not(result, comparison)
        if why is not None and comparison.role != "interaction":
            found.setdefault(comparison.arm, why)
    return found


def asked_about(result: Result, one: Comparison) -> tuple[str, str]:
    """The arms of which the gate says what a comparison's change does: a change that is left out of everything is the one
    that was looked at alone, whatever else both arms have."""
    if one.role in ("last", "interaction"):
        alone = (each for each in result.comparisons if each.role == "alone" and each.label == one.label)
        return next(((each.arm, each.against) for each in alone), (one.arm, one.against))
    return one.arm, one.against


def leave_with(result: Result, one: Comparison) -> tuple[str, ...]:
    """The speed-ups that a comparison `last` leaves out besides the one that it is called after: those that need it."""
    arms = {arm.name: arm.settings for arm in result.arms}
    if one.role != "last" or not {one.arm, one.against} <= arms.keys():
        return ()
    mine, theirs = arms[one.arm], arms[one.against]
    differ = {key for key in (*mine, *theirs) if mine.get(key) != theirs.get(key)}
    named = {key.removeprefix(SETTING) for key in differ if key.startswith(SETTING)}
    return tuple(sorted(named - {one.label.removeprefix(SETTING).partition("=")[0]}))


def label_of_kind(result: Result, arm: str, against: str | None = None) -> str:
    """`behavioural` or `numeric`, which stand on every line that quotes such a speed; else nothing."""
    parity = parity_of(result, arm, against)
    if parity is None:
        return ""
    if parity.kind == "behavioural" or parity.state == "behavioural":
        return "behavioural"
    return "numeric" if parity.kind == "numeric" else ""


def kind_in_words(result: Result, arm: str, against: str | None = None) -> str:
    """The same for a sentence, with what is known of an arm's held-out loss, or why nothing is. A numeric arm whose error
    was held against the baseline's needs none."""
    kind, parity = label_of_kind(result, arm, against), parity_of(result, arm, against)
    if not kind or parity is None:
        return kind
    seen = next((check.detail for check in parity.checks if check.gate == "P4"), "")
    if seen:
        return f"{kind}: held-out loss {printable(seen.removeprefix(f'{kind}: '), LONGEST)}"
    if kind == "numeric" and (not parity.why_not_checked or parity.state == "not checked"):
        return kind
    because = f", because {printable(parity.why_not_checked.rstrip('.'), LONGEST)}" if parity.why_not_checked else ""
    return f"{kind}: held-out loss not measured{because}; `--parity full` measures it"


def maths(parity: Parity | None, short: bool = False) -> str:
    """What the column `maths` says: `same (gradient 4e-7)`."""
    if parity is None:
        return "not checked"
    state: str = parity.state
    if parity.kind == "numeric" and parity.state != "differs":
        state = f"numeric, {state}"
    if short:
        return state
    if parity.state == "differs":
        return f"differs: {printable(parity.first_difference, 60)}"
    if parity.state == "not checked":
        return f"not checked: {printable(parity.why_not_checked, 60)}" if parity.why_not_checked else state
    gradient = next((check for check in parity.checks if check.quantity == "gradient"), None)
    return state if gradient is None else f"{state} (gradient {small(gradient.observed)})"
