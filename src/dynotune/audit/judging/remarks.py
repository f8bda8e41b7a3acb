"""What is said of comments that suppress: those that do nothing, or name what is called otherwise now. Each cause once."""

from collections.abc import Collection, Iterator, Sequence

from dynotune.audit.judging.called import Past, is_known, meant_by, past_of
from dynotune.audit.judging.suppression import Suppression
from dynotune.audit.place import Place
from dynotune.audit.registry import heirs
from dynotune.printable import printable


def on_suppressions(
    told: Sequence[Suppression], used: Collection[Place], asked: Collection[str]
) -> list[tuple[Place, str]]:
    """Sentences with the place that they are about. used: comments that suppress; asked: codes that were checked."""
    found, past = [], []
    for one in told:
        gone = sorted(word for word in one.words if not meant_by(word))
        meant = frozenset[str]().union(*map(meant_by, one.words))
        if one.wrong:
            found.append((one.place, f"this suppresses nothing: {one.wrong}."))
        elif gone:
            more = " any more" if all(is_known(word) for word in gone) else ""
            found.append(
                (one.place, f"there is no rule {printable(', '.join(gone))}{more}: this suppresses nothing of it.")
            )
        elif one.place not in used and meant <= set(asked):
            found.append(
                (one.place, f"nothing is found here for {', '.join(sorted(one.words))}: take the comment out.")
            )
        else:
            past.append(one)
    return found + list(_on_the_past(past))


def _on_the_past(told: Sequence[Suppression]) -> Iterator[tuple[Place, str]]:
    """Of each code or name of a rule that another has taken over: where it stands first, and how often."""
    places: dict[str, list[Place]] = {}
    for one in told:
        for word in sorted(one.words):
            if past_of(word) is Past.PART_OF_ANOTHER:
                places.setdefault(word, []).append(one.place)
    for word, where in places.items():
        here = "here" if len(where) == 1 else f"here and in {len(where) - 1} more comments"
        said = f"{word} is a part of {heirs()[word]} now, and all of that is suppressed {here}: name it so."
        yield where[0], said.replace("1 more comments", "1 more comment") if len(where) == 2 else said
