"""From what a foreign process observed to the record that the analysis reads."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import ValidationError

from dynotune.config.secrets import without_secret_words
from dynotune.errors import DataError
from dynotune.printable import printable
from dynotune.profile.analysis.ranks import own_seconds
from dynotune.profile.analysis.remedies import edited_name
from dynotune.profile.records.record import Record, of_plain

SLOW_RANK = 1.1
"""A rank's own time before it waits for the others cannot be seen here; steps that differ by this much can."""

MUCH = 0.01
"""Share of a step."""

METHODS = ("sft", "dpo", "kto", "reward", "grpo", "rloo")
"""That `trl` trains by."""

FIELDS = ("trainer", "method", "timed", "traced", "environment", "model", "memory", "warm_up", "optimizer")


def record_of(words: Sequence[str], observed: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> Record:
    """observed: of each rank, the first one's first. notes: of the command as a whole.

    Raises `DataError` where a process of the command wrote something else.
    """
    first = observed[0]
    told = _only_timed(first) if "only_timed" in first else {name: first[name] for name in FIELDS if name in first}
    said = [*notes, *first.get("notes", ()), *told.pop("notes", ()), *_cost(first), *_ranks(observed)]
    try:
        when = datetime.now(UTC).isoformat(timespec="seconds")
        told["arguments"] = first.get("foreign", {}).get("arguments", {})
        record = of_plain(Record, {**told, "notes": said, "measuring": measuring(words), "when": when})
        return replace(record, own_seconds=_own(observed)) if len(observed) > 1 else record
    except (ValidationError, KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(
            f"what the processes of `{shlex.join(words)}` observed cannot be read: {printable(str(error), 300)}. Another"
            " version of Dynotune is installed in the script's environment."
        ) from error


def measuring(words: Sequence[str]) -> str:
    """`Record.measuring` of TRL's own command, which takes any setting as a flag. Of a script's flags nothing is known: it
    is measured beside an edited copy. Empty where it is not plain which word is the script, as behind `-m`."""
    shown = without_secret_words(words)
    said = shlex.join(shown)
    if any(Path(word).name == "trl" and after in METHODS for word, after in pairwise(words)):
        return f"dynotune bench -- {said} :: {said} {{change}}"
    scripts = [i for i, word in enumerate(shown) if word.endswith(".py") and not word.startswith("-")]
    if len(scripts) != 1:
        return ""
    edited = [edited_name(word) if i == scripts[0] else word for i, word in enumerate(shown)]
    return f"dynotune bench -- {said} :: {shlex.join(edited)}"


def _own(observed: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """By rank, for those that were traced."""
    records = {
        int(one.get("rank", 0)): of_plain(Record, {name: one[name] for name in FIELDS if name in one})
        for one in observed
        if one.get("traced")
    }
    return {rank: took for rank, record in records.items() if (took := own_seconds(record)) is not None}


def _only_timed(observed: Mapping[str, Any]) -> dict[str, Any]:
    """Of a Python in which only steps could be timed. The first ones are the warm-up."""
    seconds = observed["seconds"]
    warm = min(10, len(seconds) // 2)
    timed = [{"number": i + 2, "seconds": one, "host_seconds": one} for i, one in enumerate(seconds)][warm:]
    return {
        "trainer": "torch",
        "method": "training",
        "timed": timed,
        "traced": (),
        "warm_up": {"steps": warm, "seconds": sum(seconds[:warm])},
        "notes": [
            "Only steps were timed: Dynotune's tracer cannot be loaded in the script's own Python"
            f" ({printable(str(observed['only_timed']), 200)}). It needs Python 3.11, PyTorch 2.11, numpy, or newer ones."
        ],
    }


def cost_of_watching(observed: Mapping[str, Any]) -> tuple[float, float] | None:
    """Host seconds of a timed step that our hooks took, and their share of it. None where that was not observed."""
    own = observed.get("foreign", {}).get("own_seconds")
    steps = [one["seconds"] for one in observed.get("timed", ())]
    return (own, own / median(steps)) if own is not None and steps else None


def _cost(observed: Mapping[str, Any]) -> list[str]:
    """Where it is much."""
    cost = cost_of_watching(observed)
    if cost is None or cost[1] < MUCH:
        return []
    return [
        f"Watching took the host {1e6 * cost[0]:,.0f} microseconds for each timed step, {cost[1]:.1%} of its length. The"
        " host's clock leaves them out; what they do to caches, or to a GPU that waits for the host, it cannot leave out."
    ]


def _ranks(observed: Sequence[Mapping[str, Any]]) -> list[str]:
    if len(observed) < 2:
        return []
    seconds = {int(one.get("rank", 0)): [step["seconds"] for step in one.get("timed", ())] for one in observed}
    each = {rank: median(steps) for rank, steps in seconds.items() if steps}
    said = [f"{len(observed)} ranks were observed; what is shown is of rank {observed[0].get('rank', 0)}."]
    slow, fast = max(each, key=lambda rank: each[rank]), min(each, key=lambda rank: each[rank])
    if each[slow] > SLOW_RANK * each[fast]:
        said.append(f"Rank {slow}'s steps took {each[slow] / each[fast]:.2f} times those of rank {fast}.")
    return said
