"""Promise: the exact attention as an operator gives the values of the exact attention and autograd's gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dynotune.model.attention.backends import reference, traced_reference
from tests.model.lora.adapted import gap


def made(heads: int, key_heads: int, tokens: int, keys: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(heads, tokens, 8), (key_heads, keys, 8), (key_heads, keys, 8)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]


def boundaries_of(lengths: list[int], empty: int = 2) -> Tensor:
    ends = torch.tensor([0, *lengths]).cumsum(0)
    return torch.cat([ends, ends[-1:].expand(empty)]).to(torch.int32)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.sampled_from([(4, 4), (4, 2), (6, 1)]),
    st.sampled_from([None, 1, 3, 20]),
    st.sampled_from([None, 2.0]),
    st.sampled_from([(0,), (3, 0, 5)]),
)
def test_values_and_gradients(
    lengths: list[int], heads: tuple[int, int], window: int | None, softcap: float | None, trunks: tuple[int, ...]
) -> None:
    """Also with keys before each segment's own: `trunks` of them, in turns."""
    key_lengths = [n + trunks[i % len(trunks)] for i, n in enumerate(lengths)]
    inputs = made(*heads, sum(lengths), sum(key_lengths))
    weights = torch.randn(sum(lengths), heads[0], 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    right = reference.attend(*inputs, tuple(lengths), 0.3, window, softcap, tuple(key_lengths))
    wanted = torch.autograd.grad((right * weights).sum(), inputs)
    ends = boundaries_of(lengths), boundaries_of(key_lengths)
    out = traced_reference.attend(*inputs, *ends, 0.3, window, softcap)
    found = torch.autograd.grad((out * weights).sum(), inputs)
    assert torch.equal(out, right)
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.shape == theirs.shape
        # A token that sees itself alone has no gradient of its scores, but for rounding.
        assert gap(mine, theirs) < 1e-6 or float(theirs.detach().abs().max()) < 1e-12


def test_as_pytorch_wants_operators_to_be() -> None:
    torch.library.opcheck(
        traced_reference.attend, (*made(4, 2, 12, 15), boundaries_of([5, 7]), boundaries_of([8, 7]), 0.3, 4, None)
    )


def test_on_a_gpu_the_compiler_is_told_that_it_would_wait() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q, k, v = (torch.empty(2, 4, 8, device="cuda") for _ in range(3))
        boundaries_S1 = torch.zeros(3, dtype=torch.int32, device="cuda")
        with pytest.raises(RuntimeError, match="one document after another"):
            traced_reference.attend(q, k, v, boundaries_S1, boundaries_S1, 0.3, None, None)
