"""Promise: tensors that differ in a bit, a name, a kind or a shape have another digest, wherever they lie."""

from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from dynotune.reference import tensors
from dynotune.reference.tensors import tensors_digest
from tests.tiny import tiny_model

KINDS = [torch.bool, torch.uint8, torch.float8_e4m3fn, torch.bfloat16, torch.float16, torch.float32, torch.int64]
KINDS += [torch.float64, torch.complex64]


def _random(kind: torch.dtype, count: int, seed: int) -> torch.Tensor:
    bits = torch.randint(0, 2, (count,), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    if kind is torch.bool:
        return bits.bool()
    return bits.repeat_interleave(torch.empty((), dtype=kind).element_size()).view(kind)


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several parts of a few words."""
    monkeypatch.setattr(tensors, "_WORDS", 4)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 70), st.integers(0, 9), st.data())
def test_any_bit_counts(kind: torch.dtype, count: int, seed: int, data: st.DataObject) -> None:
    """In parts of four words, too, and of words that end within one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensors, "_WORDS", 4)
        one = _random(kind, count, seed)
        first = tensors_digest([("a", one)])
        assert tensors_digest([("a", one.clone())]) == first
        assert tensors_digest([("b", one)]) != first
        assert tensors_digest([("a", one), ("b", one)]) != first
        assert tensors_digest([("a", one[None])]) != first
        if count:
            other = one.clone()
            place = data.draw(st.integers(0, other.element_size() * count - 1))
            other.view(torch.uint8)[place] ^= 1 if kind is torch.bool else 1 << data.draw(st.integers(0, 7))
            assert tensors_digest([("a", other)]) != first


@pytest.mark.usefixtures("short_parts")
def test_places_count_within_a_part_and_among_parts() -> None:
    """Two words, or two whole parts, in each other's place."""
    one = torch.arange(16, dtype=torch.int32)
    found = {tensors_digest([("a", one)])}
    for order in ([1, 0, *range(2, 16)], [*range(4, 8), *range(4), *range(8, 16)], [*range(15), 15][::-1]):
        found.add(tensors_digest([("a", one[order])]))
    assert len(found) == 4


def test_tensors_in_memory() -> None:
    """Of a model: in any order, and each of them."""
    model: Any = tiny_model()
    state = dict(model.state_dict())
    first = tensors_digest(state.items())
    assert tensors_digest(reversed(list(state.items()))) == first
    name = next(iter(state))
    for other in (
        {**state, name: state[name].bfloat16()},
        {**state, name: state[name].t()},
        {**state, name: state[name] + 1e-3},
        {**state, "more": torch.zeros(0)},
        {f"{n}_": t for n, t in state.items()},
    ):
        assert tensors_digest(other.items()) != first


def test_the_same_bits_of_another_kind_or_shape_are_other_weights() -> None:
    bits = torch.arange(64, dtype=torch.int16)
    same = [bits, bits.view(torch.bfloat16), bits.view(torch.float16), bits.view(8, 8), bits.view(torch.int32)]
    assert len({tensors_digest([("a", one)]) for one in same}) == len(same)


def test_zeros_behind_the_end_are_not_taken_for_content() -> None:
    assert tensors_digest([("a", torch.zeros(3, dtype=torch.uint8))]) != tensors_digest(
        [("a", torch.zeros(4, dtype=torch.uint8))]
    )


@pytest.mark.parametrize("begins", range(5))
def test_a_part_of_another_tensor_counts_as_itself(begins: int) -> None:
    """It may begin within a word, and lie in another order than its shape says."""
    whole = torch.randn(41, 8).bfloat16().reshape(-1)
    part = whole[begins : begins + 64]
    assert tensors_digest([("a", part)]) == tensors_digest([("a", part.clone())])
    turned = part.view(8, 8).T
    assert tensors_digest([("a", turned)]) == tensors_digest([("a", turned.contiguous())])
    assert tensors_digest([("a", turned)]) != tensors_digest([("a", part.view(8, 8))])


@pytest.mark.parametrize(
    ("words", "digest"),
    [(10, "bdb9e093516f37b1f6b0ea24e5b4eb21"), (5 * 16384 * 4 + 7, "9d7cd668be3227d8095ba34bc0bbcc33")],
)
def test_the_numbers_are_the_same_in_every_process_and_version(words: int, digest: str) -> None:
    """A cache of references outlives both. Of less than a part, and of many at once with a rest, half of them negative."""
    content = (torch.arange(words) * 40503 % 2**31 - 2**30).int()
    assert tensors_digest([("a", content)]) == digest


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_finds_what_a_cpu_finds() -> None:
    state = {str(kind): _random(kind, 3 * (1 << 14) * 300 + 5, 1) for kind in KINDS}
    assert tensors_digest((name, one.cuda()) for name, one in state.items()) == tensors_digest(state.items())
