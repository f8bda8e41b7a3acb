"""Promise: what is summed over chunks is summed in float32, whatever precision the operands have."""

import pytest
import torch
from torch import Tensor

from dynotune.model.head.products import add_product, product, result_precision


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_sums_over_chunks_lose_nothing_to_the_operands_precision(precision: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    chunks = [torch.rand(2, 3, 16, generator=random).to(precision) for _ in range(300)]
    exact = torch.stack([a.double() @ b.double().t() for a, b in chunks]).sum(0)
    total: Tensor | None = None
    coarse = torch.zeros(3, 3, dtype=precision)
    for a, b in chunks:
        total = add_product(total, a, b.t())
        coarse += a @ b.t()
    assert total is not None
    assert total.dtype is (torch.float64 if precision is torch.float64 else torch.float32)
    assert ((total - exact).abs() / exact).max() < 1e-6
    if precision.itemsize < 4:  # negative control: the operands' precision stops counting
        assert ((coarse.double() - exact).abs() / exact).max() > 1e-3


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32])
def test_a_product_is_written_where_it_is_wanted(precision: torch.dtype) -> None:
    a, b = torch.randn(4, 6).to(precision), torch.randn(6, 5).to(precision)
    out = torch.full((3, 4, 5), 7.0, dtype=result_precision(a))
    product(a, b, out[1])
    torch.testing.assert_close(out[1].to(precision), a @ b)
    assert (out[[0, 2]] == 7).all()
