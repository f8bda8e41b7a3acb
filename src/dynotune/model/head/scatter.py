"""Rows that share a place, added up in an order that never varies.

Legend of shapes: N rows, K columns of a row.
"""

from torch import Tensor


def summed(rows_NK: Tensor, places_N: Tensor, count: int) -> Tensor:
    """The sums [count, K] of the rows that fall to each place, in the rows' precision; zeros where none does.

    `places_N` is int64, each from 0 to `count` - 1, and may repeat. The host does not wait. Adding atomically, as
    `index_add_` does on CUDA, would give other last bits in another run; `index_put_` sorts the places there first. On the
    CPU it is the other way round.
    """
    total = rows_NK.new_zeros(count, *rows_NK.shape[1:])
    if rows_NK.device.type == "cpu":
        return total.index_add_(0, places_N, rows_NK)
    return total.index_put_((places_N,), rows_NK, accumulate=True)
