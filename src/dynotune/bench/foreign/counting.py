"""Tokens and seconds of a command's own steps, seen from outside: for one that reports none, and to see what others count.

The command runs under the hook of `dynotune profile`, of which nothing is traced: tokens are read from the batches that its
model was called with.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, takewhile
from pathlib import Path
from statistics import fmean, median

from dynotune.bench.foreign.protocol import Told
from dynotune.errors import DataError
from dynotune.profile.foreign.as_record import record_of
from dynotune.profile.foreign.counted import count_of
from dynotune.profile.foreign.protocol import Asked, observed, write_options
from dynotune.profile.foreign.run import environment
from dynotune.profile.records.record import Record

WARM_UP = 10
"""Steps that are not counted. A fixed number, so that arms are counted over the same stretch of their data."""

ALL = 1 << 40
"""Steps: more than any command takes."""

ALIKE = 0.001
"""Share by which two counts of the same tokens may differ: one counts the last token of a document, the other does not."""


class Counting:
    """Of one run of a command."""

    def __init__(self, folder: Path, steps: int | None) -> None:
        """folder: a new one. steps: that are counted, behind which the command is stopped; None: all, and it goes on."""
        self.folder = folder
        folder.mkdir()
        warm_up = 1 if steps is None else WARM_UP
        write_options(folder, Asked(steps or ALL, traced=0, warm_up=warm_up, stop=steps is not None))

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """`given`, so that Python processes are watched."""
        return environment(given, self.folder)

    def record(self, words: Sequence[str]) -> Record:
        """What was seen. Raises `DataError` where no step was."""
        found = [one for one in observed(self.folder) if one.get("timed") or one.get("seconds")]
        if not found:
            raise DataError("too few steps of an optimizer of torch.optim were seen in it")
        return record_of(words, found, [])

    def told(self, words: Sequence[str]) -> Told:
        """A report in the command's place. Raises `DataError` where it would be a guess."""
        record = self.record(words)
        count = count_of(record)
        return Told(
            count.tokens,
            count.seconds,
            label_tokens=count.label_tokens,
            processed_tokens=count.processed_tokens,
            steps=count.steps,
            peak_memory=record.memory.peak_allocated,
        )


def counts_padding(told: Told, record: Record) -> str:
    """What shows that a report counts padding as real tokens, as the end of a sentence; empty where its count can be right.

    Which of its steps a command reports is not known, and its first ones were not seen: it is believed up to the most real
    tokens that so many of its steps can hold. Raises `DataError` where batches do not tell, or the report has no `steps`.
    """
    if not told.steps:
        raise DataError("it reports no `steps`")
    count_of(record)
    real = _most([one.real_tokens or 0 for one in record.timed], told.steps)
    processed = [one.processed_tokens or 0 for one in record.timed]
    unseen = max(0, told.steps - len(record.timed)) * max(processed)
    if told.tokens <= (real + unseen) * (1 + ALIKE):
        return ""
    return (
        f"it reported {told.tokens:,} tokens of {told.steps:,} steps, whose batches hold at most {real + unseen:,} real"
        f" ones, {_most(processed, told.steps) + unseen:,} with padding"
    )


FIRST_ONES, SLOW = 10, 2.0
"""Steps from the first one on of which one after the other may be of a start, where each takes so many usual ones."""

FEWEST = 5
"""Steps by which it is known what one takes."""


def usual_step(record: Record) -> float | None:
    """Mean seconds of a step behind those of the start; None where too few were seen."""
    seconds = [one.seconds for one in record.timed]
    if not seconds:
        return None
    slow = SLOW * median(seconds)
    began = sum(1 for _ in takewhile(lambda one: one > slow, seconds[:FIRST_ONES]))
    rest = seconds[began:]
    return fmean(rest) if len(rest) >= FEWEST else None


def _most(counts: Sequence[int], steps: int) -> int:
    """The largest sum of so many steps in a row, or of all."""
    sums = [0, *accumulate(counts)]
    width = min(steps, len(counts))
    return max(b - a for a, b in zip(sums, sums[width:], strict=False))
