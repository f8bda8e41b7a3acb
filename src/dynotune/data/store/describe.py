"""What a store's manifest says about the data for people: lengths, and how well it packs."""

from __future__ import annotations

from importlib.metadata import version
from time import gmtime, strftime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynotune._version import __version__


def about_rows(lengths: NDArray[np.int64], per_example: int = 1) -> dict[str, Any]:
    """What is said of examples of these lengths [rows], whatever a run's settings, so that it can be kept. A document counts
    with at most the tokens of a micro-batch where packing is told. per_example: 2 where they are the sides of pairs."""
    # For the reader of a manifest alone: nothing that is stored depends on the plan. A document of millions of tokens, which
    # no run trains whole, would otherwise make a ladder of as many.
    from dynotune.plan.summary import DEFAULT_TOKENS, fill_at_default

    return {
        "built": strftime("%Y-%m-%dT%H:%M:%SZ", gmtime()),
        "versions": {"dynotune": __version__, **{name: version(name) for name in ("tokenizers", "transformers")}},
        "lengths": histogram(lengths),
        "lengths_of": "rows" if per_example == 1 else "sides of pairs",
        "median_length": float(np.median(lengths)),
        "longest": int(lengths.max()),
        "packing": fill_at_default(np.minimum(lengths, DEFAULT_TOKENS)),
    }


def histogram(lengths: NDArray[np.int64]) -> dict[str, int]:
    """Rows by length: `"65-128": 12` are those of 65 to 128 tokens. Bins below the first and above the last are left out."""
    bins = np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    counts = np.bincount(bins)
    first = int(np.flatnonzero(counts)[0]) if len(lengths) else 0
    return {_name(b): int(counts[b]) for b in range(first, len(counts))}


def _name(power: int) -> str:
    return f"{(1 << power >> 1) + 1}-{1 << power}" if power else "0-1"


def in_words(about: dict[str, Any]) -> list[str]:
    """The lines that `dynotune prepare` prints of these figures."""
    shown = ", ".join(f"{count:,} of {name}" for name, count in about["lengths"].items() if count)
    packed = about["packing"]
    what = about.get("lengths_of", "rows")
    ladder = ", ".join(f"{rung:,}" for rung in packed["ladder"])
    return [
        f"lengths before `max_length` ({what} of tokens): {shown}; median {about['median_length']:,g}, longest"
        f" {about['longest']:,}",
        f"packing of the whole data at {packed['examples_per_step']} examples a step, micro-batches of up to"
        f" {packed['micro_batch_tokens']:,} tokens (for your settings: `dynotune plan`): fill {packed['fill']:.1%},"
        f" {packed['documents_per_micro_batch']:.1f} documents a micro-batch (ladder {ladder});"
        f" {packed['compression_ratio']:.1f} if steps set no limit",
    ]
