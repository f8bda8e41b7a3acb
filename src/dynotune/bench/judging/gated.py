"""Which gate a comparison rests on: not every two arms that are compared were asked whether they make the same updates."""

from collections.abc import Collection, Sequence

from dynotune.bench.asking.asked import Pairing
from dynotune.results.result import Comparison, Parity


def gates_for(
    parity: Sequence[Parity], pairing: Pairing, pairings: Sequence[Pairing]
) -> tuple[Parity | None, list[Parity]]:
    """What the gate said of the two arms. Where it was not asked of them, as of a change that is left out of everything,
    what stands for it: what it said of that change alone, and of either arm."""
    of = {(one.arm, one.against): one for one in parity}
    if (own := of.get((pairing.arm, pairing.against))) is not None:
        return own, []
    alone = [of.get((one.arm, one.against)) for one in pairings if (one.label, one.role) == (pairing.label, "alone")]
    standing = [one for one in alone if one is not None]
    standing += [one for one in parity if one.arm in (pairing.arm, pairing.against) and one not in standing]
    return None, standing


def worst(parity: Sequence[Parity]) -> Parity | None:
    """One that differs before one that was not checked before all others."""
    for state in ("differs", "not checked"):
        if found := [one for one in parity if one.state == state]:
            return found[0]
    return parity[0] if parity else None


def note_of_gates(comparisons: Sequence[Comparison], parity: Sequence[Parity]) -> list[str]:
    """Which arms no gate has seen, as a sentence: those that leave a change out. To ask each takes as long as all gates
    before them."""
    seen = {name for one in parity for name in (one.arm, one.against)}
    of_both = (name for one in comparisons if one.gated_by for name in (one.arm, one.against))
    unseen = [name for name in dict.fromkeys(of_both) if name not in seen]
    if not unseen:
        return []
    asked = {(one.arm, one.against) for one in comparisons if one.role in ("alone", "whole")}
    but_not = _but_not([one for one in parity if (one.arm, one.against) in asked])
    of_changes = "What each change does to updates was asked of it alone, and of all together"
    return [f"Not gated: {_listed(unseen)}. {of_changes}{but_not}."]


def note_of_lead(comparisons: Sequence[Comparison], parity: Sequence[Parity], failed: Collection[str]) -> list[str]:
    """Where a sweep's first arm failed, so that another leads: the gate came before that, and held all against the first.

    failed: arms that could not be measured.
    """
    ours = [one for one in comparisons if one.gated_by and not {one.arm, one.against} & {*failed}]
    both = [*dict.fromkeys(name for one in ours for name in (one.against, one.arm))]
    standing = [one for one in parity if one.arm in both and one.against in failed]
    if not standing:
        return []
    first = standing[0].against
    return [
        f"Not gated against each other: {_listed(both)}. What each does to updates was asked beside {first},"
        f" which could not be measured{_but_not(standing)}."
    ]


def _but_not(parity: Sequence[Parity]) -> str:
    """Of whom it was not, as the end of a sentence that says that it was asked of all."""
    unchecked = [*dict.fromkeys(one.arm for one in parity if one.state == "not checked")]
    if not unchecked:
        return ""
    none = len(unchecked) == len({one.arm for one in parity})
    return "; none of that was checked" if none else f"; not checked was that of {_listed(unchecked)}"


def _listed(names: Sequence[str]) -> str:
    """The first of them."""
    few, more = names[:3], len(names) - 3
    return ", ".join(few) + (f" and {more} more" if more > 0 else "")
