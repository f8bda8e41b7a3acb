"""Promise: of a step with many micro-batches a few and the update can be traced, as they would be seen in a trace of all;
what is between runs as without a trace, and what it costs does not grow with what is left out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from dynotune.measure.evidence import Evidence, Phase, Seen, Source
from dynotune.measure.traces import stretches
from dynotune.measure.traces.facts import together
from dynotune.measure.traces.step import Sample, StepMarks, TracedStep, Tracer, _has_device_events
from tests.measure.traces.test_step import Stack, count, raise_, snapshot

CPU = torch.device("cpu")
PLACES = [f"layers.{i}" for i in range(3)]
TWO_OF_8 = Sample((0, 1), 8)
During = Callable[[int], object]


def take(model: nn.Module, marks: StepMarks, of: int, during: During = lambda i: None) -> Tensor:
    """A step of micro-batches of 2, 3, 4 ... rows: its gradients. during: called within each forward pass, and with -1
    before the update."""
    model.zero_grad()
    for i in range(of):
        x = torch.arange(8.0 + 4 * i).view(2 + i, 4) / 7
        with marks.forward(i):
            during(i)
            loss = model(x).square().sum()
        with marks.backward(i):
            loss.backward()
    during(-1)
    with marks.update():
        grads = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return grads


def traced(sample: Sample | None, of: int = 8, during: During = lambda i: None, **more: Any) -> Evidence:
    model = Stack()
    with Tracer(model, PLACES, CPU).step(2, sample=sample, **more) as marks:
        take(model, marks, of, during)
    assert marks.evidence is not None
    return marks.evidence


def events(evidence: Evidence, micro_batch: int) -> dict[tuple[Any, ...], int]:
    """How many of each kind; of operators, since ranges come and go with the stretches."""
    found: dict[tuple[Any, ...], int] = {}
    for one in evidence.seen:
        if one.micro_batch == micro_batch and one.source is Source.OPERATOR and one.phase is not Phase.OTHER:
            key = one.name, one.phase, one.place, one.shapes, one.dtypes
            found[key] = found.get(key, 0) + one.count
    return found


@pytest.mark.parametrize("numbers", [(0, 1), (0, 1, 5), (0, 7), (0,)])
def test_what_is_traced_is_seen_as_in_a_trace_of_all(numbers: tuple[int, ...]) -> None:
    """Numbered by its place in the sample. Control: of what is left out nothing is seen, by the rows that it has."""
    whole, part = traced(None), traced(Sample(numbers, 8))
    assert part.micro_batches == len(numbers)
    for at, number in enumerate(numbers):
        assert events(part, at) == events(whole, number) != {}
    assert events(part, -1) == events(whole, -1) != {}, "the update"
    rows = {one.shapes[0][0] - 2 for one in part.seen if one.name == "aten::sin"}
    assert rows == set(numbers)
    assert part.watched == whole.watched
    assert part.facts.keys() == whole.facts.keys()
    assert not part.facts["compile"]


def test_the_step_is_the_step_that_it_would_have_been() -> None:
    model, found = Stack(), []
    before = snapshot(model)
    with Tracer(model, PLACES, CPU).step(2, sample=Sample((0, 1, 5), 8)) as marks:
        found.append(take(model, marks, 8))
    assert snapshot(model) == before
    untraced = Stack()
    assert torch.equal(found[0], take(untraced, TracedStep(), 8))


def test_between_there_is_no_profiler_and_no_range() -> None:
    """Control: both are there in what is traced."""
    model, on, ranged = Stack(), {}, {}

    def look(number: int) -> None:
        on[number] = torch._C._autograd._profiler_enabled()
        ranged[number] = "forward" in model.layers[0].__dict__

    with Tracer(model, PLACES, CPU).step(2, sample=Sample((0, 1, 5), 8)) as marks:
        take(model, marks, 8, look)
    assert on == ranged == {i: i in (0, 1, 5) for i in (*range(8), -1)}


def test_as_many_events_are_read_of_a_step_of_many_micro_batches_as_of_one_of_few() -> None:
    """Control: in a trace of all they are twice as many."""

    def read(sample: bool, of: int) -> int:
        evidence = traced(Sample((0, 1), of) if sample else None, of)
        return sum(one.count for one in evidence.seen)

    assert read(True, 16) == read(True, 8)
    assert read(False, 16) > 1.8 * read(False, 8)


def test_what_tracing_does_within_the_step_is_told_of() -> None:
    """That is no training time. A trace of all does nothing there."""
    asides: list[str] = []

    @contextmanager
    def aside() -> Iterator[None]:
        asides.append("began")
        yield
        asides.append("ended")

    assert traced(TWO_OF_8, aside=aside).seconds > 0
    assert asides == ["began", "ended"] * 2, "ended once, begun again once"
    for whole in (None, Sample((0, 1), 2)):
        asides.clear()
        traced(whole, of=2 if whole else 8, aside=aside)
        assert not asides


def test_one_by_one_events_are_kept_of_a_whole_step_only() -> None:
    for sample, kept in ((None, True), (Sample((0, 1), 2), True), (Sample((0,), 2), False)):
        model = Stack()
        with Tracer(model, PLACES, CPU).step(2, sample=sample) as marks:
            take(model, marks, 2)
        assert (marks.events is not None) is (marks.where is not None) is kept


@pytest.mark.parametrize("number", [0, 1, 4, -1])
def test_a_step_that_raises_leaves_nothing_behind(number: int) -> None:
    """In what is traced, in what is not, and before the update."""
    model = Stack()
    before, tracer = snapshot(model), Tracer(model, PLACES, CPU)
    stop = {number: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt), tracer.step(2, sample=TWO_OF_8) as marks:
        take(model, marks, 8, lambda i: raise_(stop[i]) if i in stop else None)
    assert marks.evidence is None
    assert snapshot(model) == before
    assert not torch._C._autograd._profiler_enabled()
    with tracer.step(3, sample=TWO_OF_8) as marks:
        take(model, marks, 8)
    assert marks.evidence is not None
    assert count(marks.evidence, "aten::sin", Phase.FORWARD, "layers.0", 1) == 1


@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_step_that_was_broken_off_and_caught_is_evidence_of_what_there_was(at: int) -> None:
    """Memory that ran out: the loop takes the step again, and no update came."""
    model = Stack()
    with Tracer(model, PLACES, CPU).step(2, sample=TWO_OF_8) as marks, pytest.raises(torch.OutOfMemoryError):
        take(model, marks, 8, lambda i: raise_(torch.OutOfMemoryError("no")) if i == at else None)
    assert marks.evidence is not None
    assert marks.evidence.micro_batches == min(at + 1, 2)
    assert not torch._C._autograd._profiler_enabled()


def test_a_profiler_that_begins_in_the_middle_goes_on_and_nothing_is_said_of_the_step() -> None:
    """Control: one that has ended before the update is in nobody's way."""
    theirs = profile(activities=[ProfilerActivity.CPU])
    evidence = traced(TWO_OF_8, during=lambda i: theirs.start() if i == 4 else None)
    assert torch._C._autograd._profiler_enabled()
    theirs.stop()
    assert "aten::sin" in {event.name for event in theirs.events()}
    assert evidence.facts["not_traced"] == "another profiler ran in the middle of the step"
    assert not evidence.seen
    theirs = profile(activities=[ProfilerActivity.CPU])
    whole = traced(TWO_OF_8, during=lambda i: {4: theirs.start, 5: theirs.stop}.get(i, int)())
    assert "not_traced" not in whole.facts
    assert events(whole, -1) == events(traced(None), -1)


def test_a_trace_that_another_profiler_came_into_is_said_to_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As PyTorch answers then, which is not tried: two sessions of it within one another break memory at times."""
    with monkeypatch.context() as patch:
        patch.setattr(stretches, "_profiler_enabled", lambda: False)  # whoever came has ended both
        assert traced(None).facts["not_traced"] == "another profiler ran in the middle of the step"
    monkeypatch.setattr(stretches, "STEP", "somebody's own")  # or goes on, and what was before it began is lost
    assert traced(None).facts["not_traced"] == "another profiler ran in the middle of the step"


def test_facts_of_stretches_add_up() -> None:
    first = {"launches": 3, "launches_by_phase": {"forward": 3}, "waits_of_host": [{"name": "a"}], "wall_us": 1.5}
    second = {"launches": 2, "launches_by_phase": {"update": 2}, "waits_of_host": [{"name": "b"}], "wall_us": 2.0}
    assert together([first, second]) == {
        "launches": 5,
        "launches_by_phase": {"forward": 3, "update": 2},
        "waits_of_host": [{"name": "a"}, {"name": "b"}],
        "wall_us": 3.5,
    }
    copies = [
        {"copies": {"DtoH": {"count": 1, "bytes": 8}}},
        {"copies": {"DtoH": {"count": 2, "bytes": 16}, "HtoD": {}}},
    ]
    assert together(copies) == {"copies": {"DtoH": {"count": 3, "bytes": 24}, "HtoD": {}}}
    assert together([first]) == first


@pytest.mark.parametrize(
    ("kernels", "launches", "says"),
    [
        ((True, True), (900, 4), True),
        (
            (True, False),
            (900, 4),
            False,
        ),  # the update was seen from the host only: it is not said that nothing ran there
        ((False, True), (900, 4), False),
        ((True, False), (900, 0), True),  # nothing was launched there
        ((False, False), (0, 0), False),
    ],
)
def test_a_stretch_whose_kernels_are_lost_says_nothing_of_them(
    kernels: tuple[bool, ...], launches: tuple[int, ...], says: bool
) -> None:
    kernel = Seen("k", Source.KERNEL, Phase.UPDATE)
    operator = Seen("aten::add", Source.OPERATOR, Phase.UPDATE)
    parts: list[Any] = [
        SimpleNamespace(seen=(operator, *([kernel] if one else [])), facts={"launches": count})
        for one, count in zip(kernels, launches, strict=True)
    ]
    assert _has_device_events(parts) is says
