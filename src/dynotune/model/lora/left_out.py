"""What a call of `LoraLinears` leaves to the kernel next to it, so that no pass over a wide tensor only adds.

y += s u B' reads and writes all of y to add a product of rank R. Where y is read by a kernel of ours anyway, that kernel can
add the product to what it has just read. The same holds for the gradient of x, dx += s v A, where a kernel of ours reads dx.
What the neighbour has at hand then, the gradient of y or x itself, makes the gradient of B or A: so it gives that one, too.
`LoraLinears` is called with weights that ask for none, and need not keep x for it.

Legend of shapes: T tokens, I inputs, O outputs, R ranks of all linears side by side.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor


@dataclass(slots=True)
class LeftOut:
    """Of one call. It stays empty where something else than `LoraLinears` answers, or where no backward pass comes by."""

    of: Literal["outputs", "gradient"]
    """`outputs`: y is that of the frozen weights alone; `gradient`: dx is. Gradients that come in are those of the sums."""

    low_TR: Tensor | None = None
    """u of the outputs, v of the gradient, once it is there."""

    weights: tuple[Tensor, ...] = ()
    """What `low_TR` is to be multiplied by: B [O, R] of each linear, or all A [R, I] as one."""

    scale: float = 1.0
