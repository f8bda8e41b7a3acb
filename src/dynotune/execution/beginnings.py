"""What the sides of pairs begin with that already stands in their micro-batch: by their tokens, so it is exact whatever a
plan took for alike. `PairSpans` counts the same."""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from dynotune.data.examples import IGNORE
from dynotune.execution.path import Document
from dynotune.model.families import Beginning, trunk_of


class Sides(Protocol):
    """A pair."""

    @property
    def chosen(self) -> Document: ...

    @property
    def rejected(self) -> Document: ...


def beginnings_of(pairs: Sequence[Sides]) -> list[Beginning]:
    """Of each side, two a pair, chosen first.

    A rejected side begins with what it has in common with the chosen one, a chosen side with its prompt, where a pair before
    it has the same. A side that stood there whole behind the same prompt keeps its last token alone.
    """
    prompts = [_prompt_of(pair.chosen) for pair in pairs]
    times = Counter(prompts)
    first_of: dict[bytes, int] = {}
    sides: dict[tuple[bytes, bytes], int] = {}
    found: list[Beginning] = []
    for pair, prompt in zip(pairs, prompts, strict=True):
        chosen, (own, other) = len(found), (pair.chosen[0], pair.rejected[0])
        first = first_of.setdefault(prompt, chosen) if prompt else chosen
        found.append((first, 0 if first == chosen else len(prompt) // own.itemsize))
        found.append((chosen, trunk_of([own, other])))
        if prompt and times[prompt] > 1:
            for side, ids in ((chosen, own), (chosen + 1, other)):
                same = sides.setdefault((prompt, ids.tobytes()), side)
                if same != side:
                    found[side] = (same, len(ids) - 1)
    return found


def _prompt_of(chosen: Document) -> bytes:
    """Its tokens before the first label; the last one is never among them."""
    ids, labels = chosen
    labelled = labels[:-1] != IGNORE
    return ids[: int(labelled.argmax()) if labelled.any() else len(ids) - 1].tobytes()
