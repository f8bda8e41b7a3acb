"""Reference log-probabilities of every pair: taken from the cache, the missing ones computed, all of them or an error.

Legend of shapes: P pairs, U distinct pairs, C columns (chosen, rejected, and the tails of either where they are kept).
"""

import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynotune.cache_folder import cache_folder
from dynotune.data.pairs import Pairs
from dynotune.parallel.ranks import Ranks
from dynotune.printable import printable
from dynotune.reference.check import Score, agreement, changes, spread
from dynotune.reference.key import Key
from dynotune.reference.nearest import why_new
from dynotune.reference.pairs import as_bytes, by_prompt
from dynotune.reference.segments import Segment, folder_of, read_all, write
from dynotune.reference.wanted import Wanted

SECONDS = 30.0
"""Between two segments: what a kill costs."""

BATCH_TOKENS = 1 << 16


@dataclass(frozen=True, slots=True)
class Reference:
    """What the run gets."""

    values_PC: NDArray[np.float64]
    """Nats: chosen, rejected and, with `Key.tails`, the tail of either. Finite, for every pair."""

    digests_P: NDArray[np.uint8]
    """[P, 16], of the tokens and masks that they belong to."""

    computed: int
    """Distinct pairs that were computed in this run, on all ranks, those of a check not counted."""

    sentences: list[str]
    """Where they come from, for the run's notes: `hit` or `made anew` with the reason, what was checked, what damaged."""


@dataclass
class ReferenceCache:
    """What the values depend on and where they are kept. Every rank has one, with the same key."""

    key: Key
    made_by: Mapping[str, str]
    """Backend, device and versions: recorded, and checked where they differ."""

    noise: float
    """Of the log-probability (`check.relative`): how far apart two backends' values may be and still count as the same."""

    ranks: Ranks = field(default_factory=Ranks)
    root: Path = field(default_factory=lambda: cache_folder() / "reference")
    """The folder of all keys' folders."""

    say: Callable[[str], None] = lambda text: None
    """Gets what should be known at once."""

    progress: Callable[[int, int], None] = lambda done, of: None
    """Gets the tokens that this rank has scored, and of how many."""

    name: str = "reference"
    """What sentences begin with."""

    seconds: float = SECONDS
    batch_tokens: int = BATCH_TOKENS
    """Of the pairs that are scored in one call."""

    _unkept: str = field(default="", init=False)
    _refused: list[str] = field(default_factory=list, init=False)
    """What did not agree when it was checked, on the first rank: why values are made anew."""

    @property
    def folder(self) -> Path:
        return folder_of(self.root, self.key)

    def obtain(self, pairs: Pairs, score: Score, order: NDArray[np.int64] | None = None) -> Reference:
        """The values of all `pairs`, as they are fed: truncated. All ranks call it together.

        score: of the numbers of some pairs; each distinct pair that is missing is asked for once, on one rank, and up to 32
        more for each other backend or version whose values are kept. order: all pairs in the order in which they are best
        scored; by default equal prompts together. What is finished is kept every `seconds`, and a killed computation
        goes on from there.

        Raises `TrainingError` for a value that is not finite.
        """
        began = time.perf_counter()
        wanted = Wanted(pairs, self.key.columns, score)
        notes = self._take(wanted)
        missing = wanted.unknown()
        place, count = printable(str(self.folder)), len(wanted.which_P)
        if not len(missing):
            told = f"hit: {count:,} pairs in {time.perf_counter() - began:.2f} s from {place}"
        else:
            why = self._why(len(missing), wanted)
            self.say(f"{self.name}: computing {len(missing):,} pairs")
            self._make(wanted, missing, order)
            kept = f"not kept: {self._unkept}" if self._unkept else f"kept in {place}"
            distinct = f"{len(missing):,} of {count:,} pairs computed" + self._repeated(wanted)
            told = f"{why}; {distinct} in {time.perf_counter() - began:.2f} s, {kept}"
        assert np.isfinite(wanted.values_UC).all(), "a pair without a reference"
        sentences = [f"{self.name}: {text}" for text in (told, *notes)]
        return Reference(wanted.values_UC[wanted.which_P], wanted.digests_P, len(missing), sentences)

    # Taking what is there

    def _take(self, wanted: Wanted) -> list[str]:
        """Fill in what any rank has. The first rank's cache counts; others add what it lacks, where theirs lie elsewhere."""
        segments, damaged = read_all(self.folder)
        notes = [f"damaged, and its pairs made anew: {text}" for text in damaged]
        self._refused = []
        mine, me = [], dict(self.made_by)
        others: dict[tuple[tuple[str, str], ...], list[Segment]] = {}
        for segment in segments:
            if me in (segment.made_by, segment.checked_by):
                mine.append(segment)
            else:
                others.setdefault(tuple(sorted(segment.made_by.items())), []).append(segment)
        mine_UC = wanted.found_in(sorted(mine, key=lambda segment: segment.made_by == me))  # what it made counts
        if self.ranks.is_first:
            wanted.values_UC = mine_UC
            notes += [said for by, theirs in others.items() if (said := self._check(wanted, dict(by), theirs))]
        wanted.values_UC = _decoded(self.ranks.from_first(_encoded(wanted.values_UC)), wanted.values_UC.shape)
        unknown = wanted.unknown()
        more = unknown[~np.isnan(mine_UC[unknown, 0])]
        self._gather(wanted, more, mine_UC[more])
        return list(dict.fromkeys(text for texts in self.ranks.gather(notes) for text in texts))

    def _check(self, wanted: Wanted, made_by: dict[str, str], segments: list[Segment]) -> str:
        """Take values that something else made, where a sample of them agrees with what is made now. Says that;
        why they are not taken is kept for `_why`."""
        offered_UC = wanted.found_in(segments)
        unknown = wanted.unknown()
        new = unknown[~np.isnan(offered_UC[unknown, 0])]
        if not len(new):
            return ""
        self.ranks.at(0, "checking reference log-probabilities that were kept")
        sample = spread(wanted.digests_U, new)
        checked = agreement(offered_UC[sample], wanted.scored(sample), self.noise)
        what = f"{len(new):,} pairs were made with {printable(changes(made_by, self.made_by))}: {checked}"
        if not checked.holds:
            self._refused.append(what)
            return ""
        wanted.values_UC[new] = offered_UC[new]
        self._keep(wanted, new, checked_of=made_by)
        return f"{what}, so they are used"

    def _why(self, missing: int, wanted: Wanted) -> str:
        refused: str = self.ranks.from_first("; ".join(self._refused))
        if missing < len(wanted.firsts_U):
            some = f"made anew for {missing:,} of {len(wanted.firsts_U):,} distinct pairs"
            return f"{some}: {refused}" if refused else f"{some}, which are not among those kept"
        return f"made anew: {refused or self.ranks.from_first(why_new(self.root, self.key, wanted.numbers))}"

    @staticmethod
    def _repeated(wanted: Wanted) -> str:
        repeated = len(wanted.which_P) - len(wanted.firsts_U)
        return f" ({repeated:,} repeat another)" if repeated else ""

    # Making what is missing

    def _make(self, wanted: Wanted, missing: NDArray[np.int64], order: NDArray[np.int64] | None) -> None:
        order = by_prompt(wanted.pairs) if order is None else order
        batches = list(wanted.batches(missing, self.batch_tokens, order))[self.ranks.rank :: self.ranks.world]
        tokens = [int(wanted.tokens_U[batch].sum()) for batch in batches]
        unkept: list[NDArray[np.int64]] = []
        last = time.monotonic()
        try:
            for i, batch in enumerate(batches):
                self.ranks.at(0, "computing reference log-probabilities")
                wanted.values_UC[batch] = wanted.scored(batch)
                unkept.append(batch)
                self.progress(sum(tokens[: i + 1]), sum(tokens))
                if time.monotonic() - last >= self.seconds:
                    self._keep(wanted, np.concatenate(unkept))
                    unkept, last = [], time.monotonic()
        finally:  # an interruption or an error loses nothing that is finished
            if unkept:
                self._keep(wanted, np.concatenate(unkept))
        mine = np.concatenate([*batches, np.zeros(0, np.int64)])
        self._gather(wanted, mine, wanted.values_UC[mine])
        if self.ranks.is_first and self.ranks.world > 1:
            self._keep_others(wanted, missing)

    def _keep_others(self, wanted: Wanted, missing: NDArray[np.int64]) -> None:
        """What the ranks of other machines kept in folders that this one does not see."""
        there = {digest for segment in read_all(self.folder)[0] for digest in as_bytes(segment.digests)}
        unseen = [u for u in missing.tolist() if wanted.digests_U[u].tobytes() not in there]
        if unseen:
            self._keep(wanted, np.array(unseen, np.int64))

    def _keep(self, wanted: Wanted, at: NDArray[np.int64], checked_of: Mapping[str, str] | None = None) -> None:
        """checked_of: what made them, where they were taken over after a check, which is then not repeated each time."""
        if self._unkept:
            return
        made_by, checked_by = (self.made_by, None) if checked_of is None else (checked_of, self.made_by)
        try:
            write(self.folder, self.key, made_by, wanted.digests_U[at], wanted.values_UC[at], checked_by)
        except OSError as error:
            self._unkept = f"{printable(str(self.folder))} cannot be written ({error.strerror or error})"
            self.say(f"{self.name}: not kept: {self._unkept}")

    def _gather(self, wanted: Wanted, at: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Every rank gets the values [n, C] that each has for some distinct pairs [n]."""
        for places, told in self.ranks.gather([_encoded(at), _encoded(values)]):
            one = np.frombuffer(base64.b64decode(places), np.int64)
            wanted.values_UC[one] = _decoded(told, (len(one), wanted.values_UC.shape[1]))


def _encoded(array: NDArray[Any]) -> str:
    """Exact, and half as long as the digits that JSON would take."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _decoded(text: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    return np.frombuffer(base64.b64decode(text), np.float64).reshape(shape).copy()
