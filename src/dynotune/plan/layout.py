"""How documents lie side by side in one forward and backward pass."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Documents, undivided, in one static token count. What follows the last document up to `tokens` is padding."""

    rows: NDArray[np.int64]
    """Row indices of the documents, in the order in which they lie."""

    tokens: int
    """Processed tokens: real ones and padding. One of the plan's ladder; the document's own length on the plain path."""

    step_rows: NDArray[np.int64] | None = None
    """All rows of the step in its order, for what follows from them; None: those of `rows`, which are no step of a plan."""

    real_tokens: int = 0
    """Tokens of documents, as far as they are computed, what several begin with once; 0 where no plan has counted them."""
