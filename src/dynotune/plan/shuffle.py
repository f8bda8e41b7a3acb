"""TRL's `shuffle_dataset`: the rows in another order, once, before epochs are ordered."""

import numpy as np
from numpy.typing import NDArray

from dynotune.data.examples import Examples
from dynotune.plan.truncation import Spans


def shuffled(examples: Examples, spans: Spans, rows: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """`rows` in the order of TRL's `shuffle_dataset` (`datasets.Dataset.shuffle(seed)`).

    TRL shuffles after truncating and after dropping what truncation left without labels, and a permutation depends on the
    number of rows. It keeps a row whose only label stands on the first token, which carries no loss and is not among
    `rows`: such rows take part in the permutation and are left out of its result.
    """
    kept = np.flatnonzero(examples.label_counts(spans.start, spans.end))
    order = kept[np.random.default_rng(seed).permutation(len(kept))]
    return order[np.isin(order, rows)]
