"""Promise: index arrays come out of their one buffer as they went in, on the device without a launch."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynotune.model.one_copy import apart, together


@st.composite
def arrays(draw: st.DrawFn) -> list[Any]:
    made = []
    for dtype in draw(st.lists(st.sampled_from([np.int64, np.int32]), max_size=6)):
        limits = np.iinfo(dtype)
        made.append(np.array(draw(st.lists(st.integers(int(limits.min), int(limits.max)), max_size=5)), dtype))
    return made


@given(given=arrays())
def test_what_goes_in_comes_out(given: list[Any]) -> None:
    buffer = together(given, pin=False)
    found = apart(buffer.clone(), given)
    assert [(x.dtype, x.tolist()) for x in found] == [
        (torch.int64 if one.dtype == np.int64 else torch.int32, one.tolist()) for one in given
    ]


def test_they_are_views() -> None:
    given = [np.arange(3, dtype=np.int32), np.arange(4)]
    buffer = together(given, pin=False)
    assert {x.untyped_storage().data_ptr() for x in apart(buffer, given)} == {buffer.untyped_storage().data_ptr()}


def test_a_buffer_of_other_arrays_is_noticed() -> None:
    with pytest.raises(AssertionError):
        apart(together([np.arange(3)], pin=False), [np.arange(2)])
    with pytest.raises(AssertionError):
        together([np.arange(3, dtype=np.int16)], pin=False)  # type: ignore[list-item]
