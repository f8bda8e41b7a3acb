"""Promise: a trace says where a step's work was done, changes nothing of it and leaves nothing behind."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from dynotune.measure.evidence import Evidence, Phase, Source
from dynotune.measure.traces.facts import compile_counters, counted_since
from dynotune.measure.traces.step import NOT_TRACING, StepMarks, Tracer
from tests.tiny import tiny_model

CPU = torch.device("cpu")


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).sin()) + x


class Stack(nn.Module):
    def __init__(self, layers: int = 3, again: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.again = nn.ModuleList(Layer() for _ in range(layers)), again

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return x


def take(model: nn.Module, marks: StepMarks = NOT_TRACING, micro_batches: int = 2) -> Tensor:
    """A step: the gradients of all parameters."""
    model.zero_grad()
    for i in range(micro_batches):
        x = torch.arange(8.0).view(2, 4) / 7 + i
        with marks.forward(i):
            loss = model(x).square().sum()
        with marks.backward(i):
            loss.backward()
    with marks.update():
        grads = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return grads


def traced(model: nn.Module, places: list[str], **step: Any) -> Evidence:
    tracer = Tracer(model, places, CPU)
    with tracer.step(2) as marks:
        take(model, marks, **step)
    assert marks.evidence is not None
    return marks.evidence


def count(evidence: Evidence, name: str, phase: Phase, at: str, micro_batch: int) -> int:
    return evidence.count([f"^{name}$"], source=Source.OPERATOR, phase=phase, at=at, micro_batch=micro_batch)


PLACES = [f"layers.{i}" for i in range(3)]


def test_forward_and_backward_of_each_micro_batch_are_found_at_each_module() -> None:
    evidence = traced(Stack(), PLACES)
    assert evidence.micro_batches == 2
    assert evidence.watched == set(PLACES)
    for place in PLACES:
        for i in range(2):
            assert count(evidence, "aten::sin", Phase.FORWARD, place, i) == 1
            assert count(evidence, "aten::cos", Phase.BACKWARD, place, i) == 1, "sin's backward"
            assert count(evidence, "aten::sin", Phase.BACKWARD, place, i) == 0
    assert evidence.count(["aten::linalg_vector_norm|aten::_foreach_norm"], phase=Phase.UPDATE) >= 1
    assert not evidence.has_device_events


def test_modules_within_modules_are_told_apart() -> None:
    evidence = traced(Stack(), ["layers.1", "layers.1.up"])
    assert count(evidence, "aten::addmm", Phase.FORWARD, "layers.1", 0) == 2, "with what lies in it"
    assert count(evidence, "aten::addmm", Phase.FORWARD, "layers.1.up", 0) == 1
    assert count(evidence, "AddmmBackward0", Phase.BACKWARD, "layers.1.up", 1) == 1
    assert {one.place for one in evidence.seen} == {"", "layers.1", "layers.1.up"}


def test_a_checkpointed_module_runs_forward_again_in_the_backward() -> None:
    evidence = traced(Stack(again=True), PLACES)
    for place in PLACES:
        assert count(evidence, "aten::sin", Phase.FORWARD, place, 0) == 1
        assert count(evidence, "aten::sin", Phase.BACKWARD, place, 0) == 1
        assert count(evidence, "aten::cos", Phase.BACKWARD, place, 0) == 1


@pytest.mark.parametrize("again", [False, True])
def test_results_are_those_of_the_untraced_step(again: bool) -> None:
    model, found = Stack(again=again), []
    with Tracer(model, [*PLACES, "layers.0.up"], CPU).step(2) as marks:
        found.append(take(model, marks))
    assert torch.equal(found[0], take(Stack(again=again)))


def test_modules_that_the_backward_pass_cannot_reach_are_told() -> None:
    """As the first ones under LoRA. What was lost on the way does not count as that."""
    model = Stack()
    model.layers[0].requires_grad_(False)
    own = model.layers[2].up.forward
    model.layers[2].up.forward = lambda x: own(x).detach()
    evidence = traced(model, [*PLACES, "layers.0.up", "layers.2.up"])
    assert evidence.facts["without_gradient"] == ["layers.0", "layers.0.up"]
    assert traced(Stack(again=True), PLACES).facts["without_gradient"] == []


def snapshot(model: nn.Module) -> list[tuple[str, dict[str, int]]]:
    return [(name, {k: id(v) for k, v in module.__dict__.items()}) for name, module in model.named_modules()]


def test_modules_are_as_they_were_also_those_whose_forward_was_replaced() -> None:
    model = Stack()
    own = model.layers[1].forward
    model.layers[1].forward = lambda x: own(x)
    before = snapshot(model)
    evidence = traced(model, PLACES)
    assert snapshot(model) == before
    assert count(evidence, "aten::sin", Phase.FORWARD, "layers.1", 0) == 1


def raise_(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [ZeroDivisionError(), torch.OutOfMemoryError("no"), KeyboardInterrupt()])
def test_a_step_that_raises_leaves_no_wrapper_and_no_profiler(error: BaseException) -> None:
    model = Stack()
    before, tracer = snapshot(model), Tracer(model, PLACES, CPU)
    model.layers[2].register_forward_hook(lambda *_: raise_(error))
    with pytest.raises(type(error)), tracer.step(2) as marks:
        take(model, marks)
    assert marks.evidence is None
    assert snapshot(model) == before
    assert not torch._C._autograd._profiler_enabled()
    model.layers[2]._forward_hooks.clear()
    with tracer.step(3) as marks:
        take(model, marks)
    assert marks.evidence is not None
    assert count(marks.evidence, "aten::sin", Phase.FORWARD, "layers.0", 1) == 1


def test_a_speedup_that_is_taken_out_in_the_middle_of_the_step_stays_out() -> None:
    model = Stack()
    with Tracer(model, PLACES, CPU).step(2):
        del model.layers[1].forward
    assert all("forward" not in layer.__dict__ for layer in model.layers)


def test_a_name_that_is_no_module_is_said_before_any_step() -> None:
    with pytest.raises(ValueError, match=r"no module named 'layers\.7'"):
        Tracer(Stack(), ["layers.7"], CPU)


def test_somebody_else_s_profiler_goes_on() -> None:
    model = Stack()
    with profile(activities=[ProfilerActivity.CPU]) as theirs:
        evidence = traced(model, PLACES)
    assert evidence.facts["not_traced"] == "another profiler was running"
    assert not evidence.seen
    assert "aten::sin" in {event.name for event in theirs.events()}


def test_what_another_thread_computes_is_not_the_step_s() -> None:
    model, stop = Stack(), threading.Event()

    def other() -> None:
        while not stop.is_set():
            torch.ones(3).tanh()

    thread = threading.Thread(target=other)
    thread.start()
    try:
        evidence = traced(model, PLACES)
    finally:
        stop.set()
        thread.join()
    assert evidence.count(["tanh"], phase=Phase.FORWARD) == evidence.count(["tanh"], phase=Phase.BACKWARD) == 0


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh_compiler")
def test_of_a_compiled_module_the_whole_is_the_place_and_nothing_is_compiled_again() -> None:
    model = Stack()
    model.layers[1].compile(backend="aot_eager", fullgraph=True)
    take(model)
    before = snapshot(model)
    evidence = traced(model, ["layers.0.up", "layers.1.up", "layers.1.down"])
    assert snapshot(model) == before
    assert evidence.watched == {"layers.0.up", "layers.1"}
    assert evidence.facts["compile"] == {}
    assert evidence.count(["^CompiledFunction$"], phase=Phase.FORWARD, at="layers.1", micro_batch=1) == 1
    assert evidence.count(["^CompiledFunctionBackward$"], phase=Phase.BACKWARD, at="layers.1", micro_batch=1) == 1
    assert evidence.count(["Torch-Compiled Region"], source=Source.REGION, at="layers.1") == 2
    compiled = compile_counters()
    take(model, micro_batches=1)
    assert counted_since(compiled) == {}, "nor behind the trace"


@pytest.mark.usefixtures("fresh_compiler")
def test_a_graph_that_is_compiled_in_the_step_is_counted() -> None:
    model = Stack(layers=1)
    model.layers[0].compile(backend="aot_eager", fullgraph=True)
    evidence = traced(model, PLACES[:1])
    assert evidence.facts["compile"]["stats"]["unique_graphs"] == 1


def test_transformers_layers_with_their_checkpointing() -> None:
    model: Any = tiny_model("llama").train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    ids = torch.arange(2, 34)[None]
    places = [f"model.layers.{i}.{part}" for i in range(2) for part in ("self_attn", "mlp")]
    with Tracer(model, places, CPU).step(2, {"tokens": [32]}) as marks:
        with marks.forward(0):
            loss = model(input_ids=ids, labels=ids).loss
        with marks.backward(0):
            loss.backward()
    evidence = marks.evidence
    assert evidence is not None
    attention = [r"^aten::scaled_dot_product_attention$"]
    for i in range(2):
        at = f"model.layers.{i}.self_attn"
        assert evidence.count(attention, phase=Phase.FORWARD, at=at) == 1
        assert evidence.count(attention, phase=Phase.BACKWARD, at=at) == 1, "recomputed"
        assert evidence.count([r"^aten::silu_backward$"], phase=Phase.BACKWARD, at=f"model.layers.{i}.mlp") == 1
    assert evidence.facts["tokens"] == [32]
    assert evidence.facts["wall_us"] > 0
