"""Promises: a mask never reaches cuDNN's attention on the plain path, whose gradient is not a number at some lengths; and no
path calls it, since it makes a plan for each length that it has not seen."""

from typing import Any

import pytest
import torch

from dynotune import SFTConfig
from dynotune.execution.packed import PackedPath
from dynotune.execution.plain import PlainPath
from dynotune.model.forward import logits_of_document
from dynotune.model.precision import Precision
from dynotune.model.without_cudnn import without_cudnn_attention
from dynotune.objectives.sft import SFTObjective
from dynotune.speedups.choose import decide
from dynotune.speedups.contract import Context
from dynotune.speedups.installed import Installed
from dynotune.speedups.registry import speedups
from dynotune.speedups.site import Site
from dynotune.train.start.device import autocast_of
from tests.model.attention.architectures import architecture
from tests.tiny import tiny_model


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


def test_packed_execution_runs_without_it() -> None:
    seen: list[bool] = []
    path = packed_path()
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with path.engaged():
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
    path.close()
    assert seen == [False]
    assert torch.backends.cuda.cudnn_sdp_enabled() is before


def packed_path() -> PackedPath:
    config, model, cpu = SFTConfig(), tiny_model(), torch.device("cpu")
    precision = Precision(torch.float32, False)
    context = Context(config, model, cpu, torch.float32, precision, longest=64)
    site = Site(context, autocast_of(precision, cpu))
    installed = Installed(decide(config, context, speedups()), site)
    path = PackedPath(site, SFTObjective(config))
    installed.close()
    return path
