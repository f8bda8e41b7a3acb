"""What a data set holds, by the ledger and the real lengths of its rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynotune.audit.place import Place

ESTIMATED = "estimated"
"""`DataFacts.tokenizer` where lengths are estimated from words."""


@dataclass(frozen=True, slots=True)
class DataFacts:
    place: Place
    format: str
    """As the recogniser calls it (`messages`, `alpaca`, `preference`, ...)."""

    rows: int
    ledger: Mapping[str, Any]
    """As `ledger.json` has it: rows read, used, skipped by reason, notices by name."""

    lengths: Sequence[int] = ()
    """Tokens of each row (or of a sample of rows), before anything is cut; of a pair, of both its sides, chosen first. By a
    tokenizer, or estimated (`tokenizer`)."""

    label_tokens: Sequence[int] = ()
    """Of the same rows, under the mask that the job asks for."""

    first_labels: Sequence[int] = ()
    """Of the same rows: the position of the first token that carries loss."""

    per_example: int = 1
    """Lengths a row has: 2 of pairs."""

    contents: Sequence[int] = ()
    """A 64-bit hash of what each used row says, to find rows that two data sets share."""

    tokenizer: str = ""
    """Whose, or `ESTIMATED`."""

    sampled: bool = False
    template: Mapping[str, Any] = field(default_factory=dict)
    """What rendering showed: `findings` (a sentence for each by its name, as `data/templates/probe.py` has them),
    `end_token`, `prefix_preserving`, `has_generation`. Empty: no conversation was rendered."""

    said: Sequence[str] = ()
    """Sentences on how it was read: which part, with what."""

    @property
    def is_estimated(self) -> bool:
        return self.tokenizer == ESTIMATED
