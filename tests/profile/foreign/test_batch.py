"""Promise: tokens, padding, labels and documents of a batch are counted right, or not at all."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynotune.profile.foreign.inside.batch import batch_of


def read(pad: int | None = None, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return batch_of(args, kwargs, pad, lengths=True).read()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_a_padded_batch_by_its_mask(lengths: list[int]) -> None:
    wide = max(lengths)
    mask_BS = torch.tensor([[1] * n + [0] * (wide - n) for n in lengths])
    ids_BS = torch.randint(5, 9, mask_BS.shape)
    labels_BS = torch.where(mask_BS.bool(), ids_BS, -100)
    found = read(None, input_ids=ids_BS, attention_mask=mask_BS, labels=labels_BS)
    assert (found["real"], found["processed"]) == (sum(lengths), len(lengths) * wide)
    assert found["lengths"] == lengths
    assert found["labels"] == sum(lengths) - len(lengths)  # nothing precedes the first token of a row


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_a_flattened_batch_by_its_positions(lengths: list[int]) -> None:
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    found = read(None, input_ids=torch.ones_like(positions), position_ids=positions)
    assert found["lengths"] == lengths
    assert found["real"] == found["processed"] == sum(lengths)


def test_padding_without_a_mask_is_what_stands_last_in_a_row() -> None:
    ids_BS = torch.tensor([[5, 0, 6, 0, 0], [7, 8, 9, 9, 9]])
    assert read(0, ids_BS)["real"] == 3 + 5
    assert "real" not in read(None, ids_BS)  # nobody says what a padding token is


def test_a_batch_in_a_mapping_and_one_of_pictures() -> None:
    assert read(None, {"input_ids": torch.ones(2, 3, dtype=torch.int64)})["processed"] == 6
    pictures = batch_of((torch.zeros(4, 3, 8, 8),), {}, None, lengths=True)
    assert (pictures.processed, pictures.rows) == (None, 4)
    assert batch_of((), {"flag": True}, None, lengths=False).processed is None


@pytest.mark.parametrize("mask", [torch.ones(1, 1, 4, 4), torch.ones(1, 7)])
def test_a_mask_of_another_shape_tells_nothing_of_padding(mask: torch.Tensor) -> None:
    assert "real" not in read(None, input_ids=torch.ones(1, 4, dtype=torch.int64), attention_mask=mask)
