"""Real tokens and seconds of a script's own timed steps, for whoever compares scripts that report nothing.

The script runs under the hook with nothing traced (`Asked(traced=0)`): tokens are read from the batches that its model was
called with, seconds from the device's clock where there is one. The hook's own time is left out of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dynotune.errors import DataError
from dynotune.profile.records.record import Record


@dataclass(frozen=True, slots=True)
class Counted:
    """Of the timed steps."""

    tokens: int
    """Of documents, no padding."""

    seconds: float
    steps: int
    processed_tokens: int | None = None
    """With padding. None, here and below: a batch does not tell."""

    label_tokens: int | None = None


def count_of(record: Record) -> Counted:
    """Raises `DataError` where the figure would be a guess: a batch that tells no tokens, or several ranks, of which the
    record holds one's batches."""
    if record.environment.world > 1:
        raise DataError(f"{record.environment.world} ranks share the steps, and the batches of one are known")
    real = [one.real_tokens for one in record.timed]
    if not real or any(n is None for n in real):
        raise DataError("the batches of the script's model do not tell which tokens are padding")
    seconds = sum(one.seconds for one in record.timed)
    processed, labels = (
        _total([getattr(one, name) for one in record.timed]) for name in ("processed_tokens", "label_tokens")
    )
    return Counted(sum(n for n in real if n is not None), seconds, len(real), processed, labels)


def _total(counts: Sequence[int | None]) -> int | None:
    known = [n for n in counts if n is not None]
    return sum(known) if len(known) == len(counts) else None
