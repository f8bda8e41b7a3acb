"""Promise: numbers leave the device in the order in which they were pushed, as they were then, and none is waited for."""

from typing import Any

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


def names(arrived: Any) -> list[str]:
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


def test_values_are_those_at_the_time_of_the_push() -> None:
    reader: LateReader[int] = LateReader(torch.device("cpu"))
    values: Tensor = torch.zeros(2)
    for i in range(3):
        values += 1
        reader.push(i, [values, values])
    assert [(i, rows) for i, rows in reader.arrived()] == [(i, [[i + 1.0] * 2] * 2) for i in range(3)]
