"""Findings of one cause in one file as one, so that twenty unknown keys are not a flood.

After comments and the baseline have been asked, which know single places. What has a remedy of its own (a near name, an
edit) stands alone.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace

from dynotune.audit.finding import Evidence, Finding

FEW = 3
"""So many of one cause are shown one by one."""

NAMED = 6
"""So many are named in the sentence; all stand in the places and in the evidence."""


def grouped(findings: Sequence[Finding]) -> list[Finding]:
    """In their order; a group stands where its first one stood."""
    of: dict[Hashable, list[Finding]] = {}
    for number, one in enumerate(findings):
        alone = not one.cause or bool(one.remedy.changes)
        of.setdefault(number if alone else (one.code, one.place.file, one.cause, one.stake, one.remedy), []).append(one)
    return [joined for held in of.values() for joined in (held if len(held) <= FEW else [_one(held)])]


def _one(held: Sequence[Finding]) -> Finding:
    first, *others = held
    names = ", ".join(f"`{one.place.key}`" for one in others[:NAMED])
    more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
    also = dict.fromkeys(place for one in held for place in (one.place, *one.also) if place != first.place)
    facts = {**first.evidence.facts, "in all": len(held), "each": [one.message for one in held]}
    return replace(
        first,
        message=f"{first.message} The same holds for {names}{more}.",
        also=tuple(also),
        evidence=Evidence(first.evidence.level, facts),
    )
