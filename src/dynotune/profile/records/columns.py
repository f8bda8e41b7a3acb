"""The events of a trace as plain values for JSON and back: columns, with what repeats (names, shapes) written once."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from dynotune.measure.evidence import Source
from dynotune.measure.traces.attribution import Attribution
from dynotune.measure.traces.events import ANNOTATION, Events, Kind

_NUMBERS = (
    "start", "end", "thread", "torch_thread", "correlation", "linked", "sequence", "forward_thread", "bytes",
)  # fmt: skip
_WHERE = ("in_step", "phase", "micro_batch", "place", "found", "operator")
assert {*_NUMBERS, "names", "kinds", "shapes", "dtypes"} == {one.name for one in fields(Events)}
assert {*_WHERE, "places", "step"} == {one.name for one in fields(Attribution)}


def events_to_json(events: Events) -> dict[str, Any]:
    return {
        **{name: getattr(events, name).tolist() for name in _NUMBERS},
        "names": _interned(events.names),
        "kinds": _interned([str(kind) for kind in events.kinds]),
        "shapes": _interned(events.shapes),
        "dtypes": _interned(events.dtypes),
    }


def events_of_json(told: Mapping[str, Any] | Events) -> Events:
    """Raises `ValueError`, `KeyError`, `IndexError` or `TypeError` where these are no events."""
    if isinstance(told, Events):
        return told
    numbers = {name: np.array(told[name], np.int64) for name in _NUMBERS}
    names = tuple(map(str, _spread(told["names"])))
    if {len(column) for column in numbers.values()} != {len(names)}:
        raise ValueError("the columns of a trace are not equally long")
    return Events(
        names=names,
        kinds=tuple(_kind(str(one)) for one in _spread(told["kinds"])),
        shapes=tuple(tuple(tuple(map(int, shape)) for shape in one) for one in _spread(told["shapes"])),
        dtypes=tuple(tuple(map(str, one)) for one in _spread(told["dtypes"])),
        **numbers,
    )


def where_to_json(where: Attribution) -> dict[str, Any]:
    columns = {name: getattr(where, name).astype(np.int64).tolist() for name in _WHERE}
    return {**columns, "places": list(where.places), "step": list(where.step)}


def where_of_json(told: Mapping[str, Any] | Attribution) -> Attribution:
    """Raises as `events_of_json`."""
    if isinstance(told, Attribution):
        return told
    columns = {name: np.array(told[name], np.int64) for name in _WHERE}
    begin, end = map(int, told["step"])
    return Attribution(
        in_step=columns["in_step"].astype(np.bool_),
        phase=columns["phase"],
        micro_batch=columns["micro_batch"],
        place=columns["place"],
        places=tuple(map(str, told["places"])),
        found=columns["found"].astype(np.bool_),
        operator=columns["operator"],
        step=(begin, end),
    )


def _kind(text: str) -> Kind:
    return ANNOTATION if text == ANNOTATION else Source(text)


def _interned(values: Sequence[Any]) -> dict[str, Any]:
    number: dict[Any, int] = {}
    index = [number.setdefault(value, len(number)) for value in values]
    return {"of": list(number), "index": index}


def _spread(told: Mapping[str, Any]) -> list[Any]:
    return [told["of"][i] for i in told["index"]]
