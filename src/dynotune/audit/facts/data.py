"""What a data set holds, by the ledger and the real lengths of its rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynotune.audit.place import Place


@dataclass(frozen=True, slots=True)
class DataFacts:
    place: Place
    format: str
    """As the recogniser calls it (`messages`, `alpaca`, `preference`, ...)."""

    rows: int
    ledger: Mapping[str, Any]
    """As `ledger.json` has it: rows read, used, skipped by reason, notices by name."""

    lengths: Sequence[int] = ()
    """Tokens of each row (or of a sample of rows); empty where no tokenizer was given."""

    label_tokens: Sequence[int] = ()
    """Of the same rows, under the mask that the job asks for."""

    tokenizer: str = ""
    """Whose; `estimated` where lengths are of characters divided by what is usual. Empty: no lengths."""

    sampled: bool = False
    template: Mapping[str, Any] = field(default_factory=dict)
    """What rendering showed: `doubled_bos`, `end_token_trained`, `mask`, ..."""
