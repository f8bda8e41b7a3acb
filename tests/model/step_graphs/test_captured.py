"""Promise: whatever a capture puts into branches it has joined before it reads their results and before it ends, also where
something raises in its middle. Streams and captures are stood in for; graphs of CUDA: `test_on_gpu.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

from dynotune.model import branches as branches_module
from dynotune.model.attention import packed_attention, text_decoder
from dynotune.model.attention.segments import segments_of
from dynotune.model.branches import KINDS, Kind
from dynotune.model.lora import install as install_lora
from dynotune.model.step_graphs import Captured, Pool
from dynotune.model.step_graphs import captured as captured_module
from dynotune.model.step_graphs.passes import Inputs, Shape, layers_of
from tests.model.compiled.steps import batch_of, model_of
from tests.model.races import Device, Stream, Watch, stand_in

LAYERS = 3

pools: list[int] = []
"""Of each capture."""


class BrokenError(Exception):
    """In the middle of a pass."""


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """With captures that end joined or not at all."""
    with stand_in() as found:
        found.current, handles = Stream("default"), count()
        pools.clear()

        @contextmanager
        def capturing(graph: Any, pool: Any) -> Iterator[None]:
            stream = found.main
            pools.append(pool)
            stream.wait_stream(found.current)  # a graph is replayed behind what was before
            with found.on(stream):
                try:
                    yield
                finally:
                    assert found.is_joined
            found.current.wait_stream(stream)

        monkeypatch.setattr(captured_module, "capturing", capturing)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(handles))
        monkeypatch.setattr(captured_module, "_out_of_capture", lambda: None)
        yield found


def capture(model: Any, kind: Kind, wrap: Any = lambda hidden_TD: hidden_TD, pool: Pool | None = None) -> Captured:
    batch = batch_of([30, 20], 64)
    boundaries_S1 = segments_of(batch.boundaries_S1, batch.lengths).boundaries_S1
    layers = layers_of(text_decoder(model), Shape(64, len(boundaries_S1), 64, "reference"))
    weights = [p for p in text_decoder(model).parameters() if p.requires_grad]
    sums = [torch.zeros_like(p) for p in weights]
    inputs = Inputs(batch.ids_T, batch.positions_T, boundaries_S1)
    with packed_attention(model, "reference"):
        return Captured(lambda given: wrap(layers(given)), inputs, weights, sums, pool or Pool(), kind)


def adapted() -> Any:
    model = model_of("llama", adapter=True)
    install_lora(model, torch.float32)
    return model


def products(stream: Stream) -> int:
    return sum(n for name, n in stream.calls.items() if "mm" in name)


@pytest.mark.parametrize("kind", KINDS)
def test_both_captures_end_joined_and_sums_are_added_behind_all_branches(device: Device, kind: Kind) -> None:
    with Watch(device):
        capture(adapted(), kind)
    assert not device.races
    beside = {"none": (0, 0), "gradients": (0, 11 * LAYERS), "all": (11 * LAYERS, 11 * LAYERS)}[kind]
    assert (products(device.soon), products(device.late)) == beside, "in captures alone: launched warm-ups add none"


def test_control_sums_that_are_added_inside_of_the_branches_are_seen(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branches_module.Branches, "end", lambda it: None)
    with Watch(device), pytest.raises(AssertionError):
        capture(adapted(), "gradients")
    assert any("_foreach_add_" in race and "not written yet by late" in race for race in device.races)


class Breaks(torch.autograd.Function):
    """In a pass that is captured."""

    device: Device

    @staticmethod
    def forward(ctx: Any, x: Tensor, when: str) -> Tensor:
        ctx.when = when
        Breaks.end_if(when == "forward")
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        Breaks.end_if(ctx.when == "backward")
        return grads[0], None

    @staticmethod
    def end_if(now: bool) -> None:
        if now and Breaks.device.current is Breaks.device.main:
            raise BrokenError


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", ["forward", "backward"])
def test_a_capture_that_something_raises_in_ends_joined_as_well(
    device: Device, monkeypatch: pytest.MonkeyPatch, kind: Kind, when: str
) -> None:
    monkeypatch.setattr(Breaks, "device", device, raising=False)
    model = adapted()
    middle = text_decoder(model).layers[1]
    middle.register_forward_hook(lambda module, args, out: Breaks.apply(out, when))  # type: ignore[no-untyped-call]
    with Watch(device), pytest.raises(BrokenError):
        capture(model, kind)
    assert bool(device.soon.calls) == (kind == "all")
    assert bool(device.late.calls) == (kind != "none" and when == "backward")
    assert not branches_module._captured


def test_gradients_of_weights_that_are_used_twice_are_in_line(device: Device) -> None:
    """Autograd adds them up as they come."""
    model = adapted()
    extra = next(p for p in text_decoder(model).parameters() if p.requires_grad)
    with Watch(device):
        capture(model, "all", lambda hidden_TD: hidden_TD + extra.sum())
    assert not device.races
    assert (products(device.soon), products(device.late)) == (4 * LAYERS, 0), "u in the forward pass is no gradient"


def test_a_pool_whose_graphs_are_gone_takes_no_capture(device: Device) -> None:
    """PyTorch refuses it: the next graph gets another one."""
    model, pool = adapted(), Pool()
    first = capture(model, "none", pool=pool)
    second = capture(model, "none", pool=pool)
    del first
    third = capture(model, "none", pool=pool)
    assert pools == [0] * 6, "both passes of each, while one of them lives"
    del second, third
    fourth = capture(model, "none", pool=pool)
    assert pools[6:] == [1, 1]
    del fourth
    with pytest.raises(ZeroDivisionError):
        capture(model, "none", lambda hidden_TD: hidden_TD / (device.current is not device.main or 1 // 0), pool)
    kept = capture(model, "none", pool=pool)
    assert pools[8:] == [2, 3, 3], "one that failed is gone as well"
    del kept
