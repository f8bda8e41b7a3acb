"""Promise: numbers leave the device in the order in which they were pushed, as they were then, and none is waited for."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dynotune.measure.late import LateReader


class Arrival:
    """A device event that has happened when it is told so, or when it is waited for."""

    def __init__(self) -> None:
        self.happened = self.waited = False

    def query(self) -> bool:
        return self.happened

    def synchronize(self) -> None:
        self.happened = self.waited = True


def reader_with(*names: str) -> tuple[LateReader[str], dict[str, Any]]:
    """A reader whose copies are under way, each with an event that the test makes happen."""
    reader: LateReader[str] = LateReader(torch.device("cpu"))
    arrivals: dict[str, Any] = {name: Arrival() for name in names}
    for i, name in enumerate(names):
        reader.waiting.append((name, torch.tensor([float(i)]), arrivals[name]))
    return reader, arrivals


def names(arrived: Any) -> list[Any]:
    return [name for name, _ in arrived]


def test_what_has_not_arrived_is_neither_handed_out_nor_waited_for() -> None:
    reader, arrivals = reader_with("a", "b", "c")
    assert names(reader.arrived()) == []
    arrivals["a"].happened = True
    assert names(reader.arrived()) == ["a"]
    assert not any(arrival.waited for arrival in arrivals.values())


def test_a_later_one_never_overtakes_an_earlier_one() -> None:
    reader, arrivals = reader_with("a", "b", "c")
    arrivals["b"].happened = arrivals["c"].happened = True
    assert names(reader.arrived()) == []
    arrivals["a"].happened = True
    assert names(reader.arrived()) == ["a", "b", "c"]


def test_waiting_hands_out_everything_once() -> None:
    reader, arrivals = reader_with("a", "b")
    arrivals["a"].happened = True
    assert names(reader.arrived(wait=True)) == ["a", "b"]
    assert (arrivals["a"].waited, arrivals["b"].waited) == (False, True)
    assert names(reader.arrived(wait=True)) == []


def test_a_copys_room_and_event_are_used_again_once_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both take longer to make than the copy to start. One that is under way is left alone, and each length has its own."""
    made: list[Any] = []

    class Event(Arrival):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

        def record(self, stream: object) -> None:
            self.happened = False

    empty = torch.empty

    def room(*shape: Any, pin_memory: bool, **how: Any) -> Tensor:
        assert pin_memory, "else the copy waits"
        return empty(*shape, **how)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch, "empty", room)
    reader: LateReader[int] = LateReader(torch.device("cuda"))
    for i in range(3):  # two at a time are under way
        for j in range(2):
            reader.push(2 * i + j, [torch.full((3,), float(2 * i + j))] * 4)
        assert names(reader.arrived()) == []
        for one in made:
            one.happened = True
        assert [*reader.arrived()] == [(k, [[float(k)] * 3] * 4) for k in (2 * i, 2 * i + 1)]
        assert len(made) == 2
    reader.push(6, [torch.zeros(3)] * 2)
    reader.push(7, [torch.ones(3)] * 4)
    assert len(made) == 3
    assert [*reader.arrived(wait=True)] == [(6, [[0.0] * 3] * 2), (7, [[1.0] * 3] * 4)]


def test_values_are_those_at_the_time_of_the_push() -> None:
    reader: LateReader[int] = LateReader(torch.device("cpu"))
    values: Tensor = torch.zeros(2)
    for i in range(3):
        values += 1
        reader.push(i, [values, values])
    assert [(i, rows) for i, rows in reader.arrived()] == [(i, [[i + 1.0] * 2] * 2) for i in range(3)]
