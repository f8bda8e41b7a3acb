"""Speed-ups in which two arms differ although the comparison does not name them: what they do is in its figure, too."""

from collections.abc import Collection, Mapping

from dynotune.bench.asking.arms import between
from dynotune.bench.asking.asked import Asked
from dynotune.bench.judging.sentence import name

WHEN = {"alone": " alone", "last": " added last"}


def notes_of_unnamed(asked: Asked, standing: Mapping[str, Collection[str]]) -> list[str]:
    """A sentence for each comparison of which that is true, where speed-ups are the changes.

    standing: by arm that got warm, what stands in it. What another key changes may decide about speed-ups, and is named.
    """
    said = list[str]()
    if asked.kind not in ("attribute", "ladder"):
        return said
    for one in asked.pairings:
        if not {one.arm, one.against} <= standing.keys():
            continue
        changed = between(asked.arm(one.against).config, asked.arm(one.arm).config).changed
        if changed.keys() != {"speedups"}:
            continue
        then, now = changed["speedups"]
        named = {key for key in {*then, *now} if then.get(key) != now.get(key)}
        mine, theirs = {*standing[one.arm]}, {*standing[one.against]}
        if unnamed := sorted((mine ^ theirs) - named):
            where = " and ".join(
                f"{', '.join(some)} only in {name(arm)}"
                for arm, others in ((one.arm, theirs), (one.against, mine))
                if (some := [each for each in unnamed if each not in others])
            )
            said.append(f"{name(one.label)}{WHEN.get(one.role, '')} has more than its name in its figure: {where}")
    return said
