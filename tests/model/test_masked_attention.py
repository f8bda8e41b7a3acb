"""Promise: a mask never reaches cuDNN's attention on the plain path, whose gradient is not a number at some lengths."""

from typing import Any

import pytest
import torch

from dynotune.execution.plain import PlainPath
from dynotune.model.forward import logits_of_document
from dynotune.model.masked_attention import without_cudnn_attention
from tests.model.attention.architectures import architecture


@pytest.mark.parametrize("before", [True, False])
def test_it_is_off_inside_and_behind_it_as_before(before: bool) -> None:
    was = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(before)
        with pytest.raises(KeyError), without_cudnn_attention():
            raise KeyError(torch.backends.cuda.cudnn_sdp_enabled())
        with without_cudnn_attention():
            assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.cudnn_sdp_enabled() is before
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was)


def test_the_plain_path_runs_without_it_forward_and_backward() -> None:
    model: Any = architecture("mistral")
    seen: list[bool] = []
    model.model.layers[0].register_forward_hook(lambda *_: seen.append(torch.backends.cuda.cudnn_sdp_enabled()))
    logits_of_document(model, torch.arange(5, 25))
    path = PlainPath(model, lambda *_: (torch.zeros(()), torch.zeros(1)))
    with path.engaged():
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
    assert seen == [False, False]
