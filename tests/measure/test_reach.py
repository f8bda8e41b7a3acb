"""Promise: attention is counted per document, as far as it reaches, by heads and head sizes of the configuration."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig

from dynotune.measure.products import CannotCountError, decoder_and_layers
from dynotune.measure.reach import Reach, head_sizes, reaches_of
from tests.tiny import SHAPE, tiny_model


def test_pairs_counted_by_hand() -> None:
    n = np.array([4, 6])
    assert Reach().twice_pairs(n) == 16 + 36
    assert Reach(window=4).twice_pairs(n) == 16 + (36 - 4)  # two of six tokens look past the window
    assert Reach(chunk=4).twice_pairs(n) == 16 + (16 + 4)  # six tokens are a chunk of four and one of two


def masked_pairs(n: int, window: int | None, chunk: int | None) -> int:
    """Pairs that a mask lets through."""
    q, k = np.arange(n)[:, None], np.arange(n)[None]
    seen = k <= q
    if window is not None:
        seen &= k > q - window
    if chunk is not None:
        seen &= k // chunk == q // chunk
    return int(seen.sum())


@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1, 40)),
)
def test_pairs_are_the_masks_less_half_the_diagonal(lengths: list[int], window: int | None, chunk: int | None) -> None:
    if window is not None:
        chunk = None
    reach = Reach(window=window, chunk=chunk)
    exact = sum(masked_pairs(n, window, chunk) for n in lengths)
    # A token and itself are half a pair by the convention. A window's far edge is half a pair as well.
    edge = sum(max(n - window, 0) for n in lengths) if window is not None else 0
    assert reach.twice_pairs(np.array(lengths)) == 2 * exact - sum(lengths) + edge


def test_squares_do_not_wrap_at_32_bits() -> None:
    assert Reach().twice_pairs(np.array([70_000], np.int32)) == 4_900_000_000


@pytest.mark.parametrize(
    ("kind", "changes", "reaches"),
    [
        ("llama", {}, [Reach(), Reach()]),
        ("qwen2", {"sliding_window": 8, "use_sliding_window": False}, [Reach(), Reach()]),
        ("mistral", {"sliding_window": 8}, [Reach(window=8), Reach(window=8)]),
        ("gemma2", {"sliding_window": 8}, [Reach(window=8), Reach()]),
        ("gemma3_text", {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}, [Reach(8), Reach()]),
        ("llama4_text", {"attention_chunk_size": 16}, [Reach(chunk=16), Reach(chunk=16)]),
    ],
)  # fmt: skip
def test_each_layer_has_its_own_reach(kind: str, changes: dict[str, Any], reaches: list[Reach]) -> None:
    assert reaches_of(AutoConfig.for_model(kind, **{**SHAPE, **changes})) == reaches


def test_layers_that_are_no_attention_are_not_guessed_at() -> None:
    config = AutoConfig.for_model("llama", **SHAPE)
    config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(CannotCountError, match="linear_attention"):
        reaches_of(config)


def test_a_configuration_that_contradicts_the_layers_is_not_believed() -> None:
    model = tiny_model()
    layer = decoder_and_layers(model)[1][0]
    assert head_sizes(model.config, layer) == (32, 32)
    model.config.head_dim = 16
    with pytest.raises(CannotCountError, match=r"q_proj makes 32 features, the configuration says 64"):
        head_sizes(model.config, layer)
