"""What reference log-probabilities depend on, beside the pair itself.

Not in it, because they change none: learning rate, output folder, seed, loss, beta, an adapter's random start. Backend and
versions are not in it either: they change the last digits only, and are recorded and checked (`check.py`).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

SEMANTICS = 1
"""Raised by hand where our code computes something else of the same tokens and weights: what is kept is then stale."""

_WORDS = {
    "weights": "the weights",
    "config": "the model's configuration",
    "precision": "the precision",
    "quantisation": "the quantisation",
    "tails": "whether tails are summed (`ld_alpha`)",
    "semantics": "this version's way of computing them",
}


@dataclass(frozen=True, slots=True)
class Key:
    """What must be equal for a kept value to be used."""

    weights: str
    """Digest of the reference's weights (`weights.py`), those of an adapter that belongs to it included."""

    config: str
    """`config_digest`."""

    precision: str
    """Of the weights and of the arithmetic, such as `bfloat16 weights, computed in bfloat16`."""

    quantisation: str = ""
    """How the weights are quantised; empty where they are not."""

    tails: bool = False
    """Whether each side's tail is kept, too."""

    semantics: int = SEMANTICS

    @property
    def columns(self) -> int:
        """Values of a pair: chosen and rejected, then, with `tails`, the tail of either."""
        return 4 if self.tails else 2

    def told(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    def name(self) -> str:
        """Of the folder."""
        return blake2b(json.dumps(self.told(), sort_keys=True).encode(), digest_size=12).hexdigest()


def differing(told: Mapping[str, Any], key: Key) -> list[str]:
    """In what a key that was told differs, in words."""
    return [words for name, words in _WORDS.items() if told.get(name) != key.told()[name]]
