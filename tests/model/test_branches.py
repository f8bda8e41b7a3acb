"""Promise: while a graph is captured LoRA's small products run in branches, each behind what it reads and before who reads
it, with its memory kept until then, and give what they give in line, to the bit; whatever is launched has no branches.

`tests.model.races` stands in for streams. Graphs of CUDA: `step_graphs/test_on_gpu.py`.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dynotune.model import branches as branches_module
from dynotune.model.attention import hidden_states, packed_attention, text_decoder
from dynotune.model.branches import (
    IN_LINE,
    KINDS,
    MOST_KEPT,
    STILL_RUNNING,
    Branch,
    Fork,
    Kind,
    branching,
    fork,
    uses_each_once,
)
from dynotune.model.elementwise.gate_lora import reference as gated
from dynotune.model.lora import install as install_lora
from dynotune.model.lora.function import LoraLinears
from dynotune.model.lora.left_out import LeftOut
from tests.model.compiled.steps import batch_of, model_of
from tests.model.races import Device, Stream, Watch, stand_in

RANK = 3


@pytest.fixture
def device() -> Iterator[Device]:
    with stand_in() as found:
        yield found


class Group:
    """Linears of one input, of random weights."""

    def __init__(self, inputs: int, outputs: Sequence[int], seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.weights = [torch.randn(n, inputs, generator=draw) / 4 for n in outputs]
        self.As = [torch.randn(RANK, inputs, generator=draw).requires_grad_() for _ in outputs]
        self.Bs = [torch.randn(n, RANK, generator=draw).requires_grad_() for n in outputs]

    def __call__(self, x: Tensor, dropped: Tensor | None = None) -> Tensor:
        return torch.stack(self.outputs(x, dropped)).sum(0)

    def outputs(self, x: Tensor, dropped: Tensor | None = None, left_out: LeftOut | None = None) -> tuple[Tensor, ...]:
        none = (None,) * len(self.weights)
        theirs = None if left_out is None else left_out.of  # whose gradients the neighbour gives
        As = [A.detach() for A in self.As] if theirs == "gradient" else self.As
        Bs = [B.detach() for B in self.Bs] if theirs == "outputs" else self.Bs
        return LoraLinears.apply(  # type: ignore[no-any-return, no-untyped-call]
            x, dropped, None, 0.5, False, left_out, *self.weights, *none, *As, *Bs, *none
        )


def chain(groups: Sequence[Group], x: Tensor, masks: Sequence[Tensor | None]) -> Tensor:
    """A residual stream, whose gradient autograd adds up, and something behind each group."""
    for group, mask in zip(groups, masks, strict=True):
        x = x + torch.tanh(group(x, None if mask is None else x * mask))
    return x


def captured(device: Device, kind: Kind, run: Any, weights: Sequence[Tensor]) -> list[Tensor]:
    """Both passes as `Captured` has them, and what it reads behind them."""
    with Watch(device):
        with branching(kind):
            out = run()
        ones = torch.ones_like(out)
        with branching(kind):
            found = torch.autograd.grad(out, weights, ones)
        sums = [one.mul(1.0) for one in found]
        total = out.detach().mul(1.0)
        del out, found
        ones.add_(1.0)  # somebody who is handed memory
    assert device.is_joined
    assert not branches_module._captured
    return [total, *sums]


@settings(max_examples=25, deadline=None)
@given(
    outputs=st.lists(st.integers(1, 3), min_size=1, max_size=9),
    kind=st.sampled_from(KINDS),
    dropped=st.booleans(),
    asks_for_x=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_reader_comes_behind_its_writer_and_memory_is_kept_until_then(
    outputs: list[int], kind: Kind, dropped: bool, asks_for_x: bool, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    groups = [Group(6, [6] * n, seed + i) for i, n in enumerate(outputs)]
    masks = [torch.randn(5, 6, generator=draw) if dropped else None for _ in groups]
    x = torch.randn(5, 6, generator=draw).requires_grad_(asks_for_x)
    weights = [w for group in groups for w in (*group.As, *group.Bs)] + [x] * asks_for_x
    out = chain(groups, x, masks)
    right = [out.detach(), *torch.autograd.grad(out, weights, torch.ones_like(out))]
    with stand_in() as device:
        found = captured(device, kind, lambda: chain(groups, x, masks), weights)
    assert not device.races
    assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))
    assert bool(device.late.calls) == (kind != "none")
    assert bool(device.soon.calls) == (kind == "all")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_model_in_branches(device: Device, family: str, kind: Kind) -> None:
    model = model_of(family, adapter=True)
    install_lora(model, torch.float32)
    batch = batch_of([30, 20], 64)
    weights = [p for p in text_decoder(model).parameters() if p.requires_grad]
    with packed_attention(model, "reference"):
        out = hidden_states(model, batch)
        assert uses_each_once(out)
        right = [out.detach(), *torch.autograd.grad(out, weights, torch.ones_like(out))]
        found = captured(device, kind, lambda: hidden_states(model, batch), weights)
    assert not device.races
    assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))
    layers = 3
    # A layer: u of four groups; v of seven linears; dA of four groups and dB of seven.
    products = [sum(n for name, n in one.calls.items() if "mm" in name) for one in (device.soon, device.late)]
    assert products == {"none": [0, 0], "gradients": [0, 11 * layers], "all": [11 * layers, 11 * layers]}[kind]


def feed_forward(groups: Sequence[Group], x: Tensor) -> Tensor:
    """Gate and up, whose adapters the activation adds, and down, whose adapter's gradient it adds."""
    for above, below in zip(groups[::2], groups[1::2], strict=True):
        outputs, gradient = LeftOut("outputs"), LeftOut("gradient")
        gate, up = above.outputs(x, left_out=outputs)
        assert outputs.low_TR is not None
        scale, trained = outputs.scale, (*above.Bs, below.As[0])
        h = gated(gate, up, outputs.low_TR, *outputs.weights, *trained, scale, scale, gradient, False)
        x = x + below.outputs(h, left_out=gradient)[0]
    return x


@pytest.mark.parametrize("joins", [True, False])
def test_what_is_left_to_a_neighbour_is_joined_before_it_is_handed_over(
    device: Device, monkeypatch: pytest.MonkeyPatch, joins: bool
) -> None:
    groups = [Group(6, [6] * (1 + (i % 2 == 0)), i) for i in range(4)]
    x = torch.randn(5, 6)
    weights = [w for group in groups for w in (*group.As, *group.Bs)]
    out = feed_forward(groups, x)
    right = [out.detach(), *torch.autograd.grad(out, weights, torch.ones_like(out))]
    if not joins:
        monkeypatch.setattr(Fork, "join", not_joined)
    found = captured(device, "all", lambda: feed_forward(groups, x), weights)
    assert bool(device.races) != joins
    assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))


def not_joined(it: Fork) -> None:
    pass


def let_go(it: Fork) -> None:
    """Without waiting."""
    if it._branches.soon is not None:
        it._branches.soon.kept.clear()


def keeps_nothing(it: Branch, behind: Any, call: Any, args: Any) -> Any:
    it._begun = True
    if behind is not None:
        it.stream.wait_event(behind)
    with torch.cuda.stream(it.stream):
        result = call(*args)
    it.kept.append((it.stream.record_event(), None))
    return result


def begins_at_once(it: Branch, behind: Any, call: Any, args: Any) -> Any:
    return RUN(it, None, call, args)


def ends_without(it: Branch, main: Stream) -> None:
    it.kept.clear()


RUN = Branch.run


@pytest.mark.parametrize(
    ("where", "name", "broken", "said"),
    [
        (Fork, "join", not_joined, "reads what is not written yet by soon"),
        (Fork, "join", let_go, "reads what is not written yet by soon"),
        (Branch, "run", keeps_nothing, "memory is still read by late"),
        (Branch, "run", begins_at_once, "reads what is not written yet by main"),
        (Branch, "end", ends_without, "reads what is not written yet by late"),
    ],
)
def test_control_what_is_missing_is_seen(
    device: Device, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, broken: Any, said: str
) -> None:
    monkeypatch.setattr(where, name, broken)
    groups = [Group(6, [6] * n, n) for n in (3, 1, 2)]
    x = torch.randn(5, 6, requires_grad=True)
    weights = [w for group in groups for w in (*group.As, *group.Bs)]
    try:
        captured(device, "all", lambda: chain(groups, x * 1.0, [None] * 3), weights)
    except AssertionError:
        assert broken is ends_without, "the last event is what joins all"
    assert any(said in race for race in device.races), device.races


def test_what_is_kept_is_bounded_and_the_main_stream_waits_for_old_work_only(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, waited = 0, []
    join = Branch.join

    def watched(it: Branch, main: Stream, but: int = 0) -> None:
        nonlocal most
        if it.stream is device.late:
            most = max(most, len(it.kept))
            before = main.clock["late"]
            join(it, main, but)
            assert main.clock["late"] > before
            waited.append(it.stream.clock["late"] - main.clock["late"])
        else:
            join(it, main, but)

    monkeypatch.setattr(Branch, "join", watched)
    groups = [Group(6, [6, 6], i) for i in range(20)]
    x = torch.randn(5, 6)
    captured(device, "all", lambda: chain(groups, x, [None] * 20), [w for g in groups for w in (*g.As, *g.Bs)])
    assert most == MOST_KEPT + 1
    assert len(waited) >= 4
    assert min(waited) >= STILL_RUNNING


class Fails(torch.autograd.Function):
    """In one pass or the other."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, when: str) -> Tensor:
        ctx.when = when
        if when == "forward":
            raise torch.OutOfMemoryError("no memory")
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise torch.OutOfMemoryError("no memory")


@pytest.mark.parametrize("when", ["forward", "backward", "beside"])
def test_all_is_joined_when_something_raises_in_the_middle(
    device: Device, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    groups = [Group(6, [6, 6], i) for i in range(3)]
    weights = [w for group in groups for w in (*group.As, *group.Bs)]

    def run() -> Tensor:
        x = chain(groups[:1], torch.randn(5, 6), [None])
        if when != "beside":
            x = Fails.apply(x, when)
        return chain(groups[1:], x, [None] * 2)

    if when == "beside":
        raises_at = iter(range(5))

        def product(*args: Any, **more: Any) -> Tensor:
            torch.zeros(1)
            if next(raises_at) == 3:
                raise torch.OutOfMemoryError("no memory")
            return scaled(*args, **more)

        from dynotune.model.lora import function

        scaled = function.scaled_product
        monkeypatch.setattr(function, "scaled_product", product)
    with pytest.raises(torch.OutOfMemoryError, match="no memory"):
        captured(device, "all", run, weights)
    assert device.late.calls or when == "forward"
    assert device.is_joined
    assert fork(torch.zeros(1)) is IN_LINE


def test_what_broke_a_capture_is_what_is_heard(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be recorded in a capture that is broken."""

    def refuse(it: Stream) -> Any:
        raise torch.AcceleratorError("operation failed due to a previous error during capture")

    def breaks() -> None:
        with branching("all"):
            fork(torch.zeros(1)).late(torch.zeros, 1)
            monkeypatch.setattr(Stream, "record_event", refuse)
            raise ValueError("the first")

    with pytest.raises(ValueError, match="the first"):
        breaks()
    assert fork(torch.zeros(1)) is IN_LINE


def test_what_is_launched_has_no_branches(device: Device) -> None:
    """Elsewhere than on the stream that is captured, in whichever thread, and after the capture."""
    x = torch.zeros(1)
    assert fork(x) is IN_LINE
    found: list[Any] = []
    with branching("all"):
        thread = threading.Thread(target=lambda: found.append(fork(x)))  # autograd's: it has the stream of the forward
        thread.start()
        thread.join()
        with device.on(Stream("of others")):
            assert fork(x) is IN_LINE
    assert isinstance(found[0], Fork)
    assert fork(x) is IN_LINE
    with branching("none"):
        assert fork(x) is IN_LINE


def test_cuda_is_not_asked_where_nothing_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> Any:
        raise AssertionError("CUDA was asked")

    for name in ("current_stream", "current_device", "stream", "Stream"):
        monkeypatch.setattr(torch.cuda, name, asked)
    group = Group(6, [6, 6], 0)
    group(torch.randn(5, 6)).sum().backward()
    with pytest.raises(AssertionError, match="asked"), branching("all"):
        pass


def test_weights_that_are_used_twice_are_seen() -> None:
    one, two = Group(6, [6], 0), Group(6, [6], 1)
    x = torch.randn(5, 6)
    assert uses_each_once(chain([one, two], x, [None] * 2))
    assert not uses_each_once(chain([one, two, one], x, [None] * 3))
    assert not uses_each_once(chain([one], x, [None]) + one.As[0].sum())
    assert uses_each_once(x), "nothing is trained"
