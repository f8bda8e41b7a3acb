"""Promise: ranks send the same messages, whatever their own gradients look like; else they would wait for each other."""

import torch

from dynotune.parallel.gradients import ALONE, _buckets


def sizes(gradients: list[torch.Tensor]) -> list[list[int]]:
    return [[g.numel() for g in bucket] for bucket in _buckets(gradients)]


def test_a_gradient_with_other_strides_travels_in_the_same_message() -> None:
    small, large = torch.ones(3, 2), torch.ones(ALONE // 4 // 1000 + 1, 1000)
    across = large.t().contiguous().t()
    assert not across.is_contiguous()
    assert sizes([small, large, small]) == [[large.numel()], [6, 6]]
    assert sizes([small, across, small]) == sizes([small, large, small])
    assert sizes([small, across[:2], small]) == [[6, 2000, 6]]  # the comparison can fail: here the size differs
