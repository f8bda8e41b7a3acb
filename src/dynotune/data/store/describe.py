"""What a store's manifest says about the data for people: lengths, and how well it packs."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from time import gmtime, strftime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dynotune._version import __version__
from dynotune.data.store.layout import DTYPES, OFFSETS

if TYPE_CHECKING:
    from dynotune.config.sft import SFTConfig
    from dynotune.data.store.write import StoreWriter


def describe(folder: Path, writer: StoreWriter, config: SFTConfig) -> dict[str, Any]:
    """Of the store that `writer` has filled."""
    offsets = np.fromfile(folder / OFFSETS, DTYPES[OFFSETS], writer.rows + 1)
    lengths = np.diff(offsets)
    return {
        "built": strftime("%Y-%m-%dT%H:%M:%SZ", gmtime()),
        "versions": {"dynotune": __version__, **{name: version(name) for name in ("tokenizers", "transformers")}},
        "lengths": histogram(lengths),
        "median_length": float(np.median(lengths)),
        "longest": int(lengths.max()),
    }


def histogram(lengths: NDArray[np.int64]) -> dict[str, int]:
    """Rows by length: `"65-128": 12` are those of 65 to 128 tokens. Empty bins at the ends are left out."""
    bins = np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    counts = np.bincount(bins)
    first = int(np.flatnonzero(counts)[0]) if len(lengths) else 0
    return {f"{(1 << b >> 1) + 1 if b else 0}-{1 << b}": int(counts[b]) for b in range(first, len(counts))}
