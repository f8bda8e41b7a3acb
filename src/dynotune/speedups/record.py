"""`engagement.json` of a run folder: which speed-ups were seen to run, in which step, by which evidence."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from dynotune.errors import ConfigError
from dynotune.measure.evidence import Evidence, Source
from dynotune.printable import printable
from dynotune.speedups.choose import Decision
from dynotune.speedups.contract import Installation
from dynotune.speedups.expectation import Absent, Expectation, Expected, Holds, Observation
from dynotune.speedups.machine import Machine
from dynotune.speedups.table import EffectOf, Row, State, proved_rows
from dynotune.speedups.whole_step import Unwanted

NAME = "engagement.json"

FORMAT = 2
"""Number of the format. Of the first one, which judged no step as a whole, files are read; of others none."""

LARGEST = 1 << 24
"""Bytes of a file that is read."""

MOST_KERNELS = 40
"""The kernels that took most of the time."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a run keeps of its proof."""

    step: int
    """The training step that was traced."""

    seconds: float
    """What tracing and judging took beyond the step."""

    device: str
    """`cuda` or `cpu`."""

    has_device_events: bool
    machine: Machine
    rows: tuple[Row, ...]
    observations: dict[str, dict[str, Any]]
    """What the step said of each that stood in it, by name, also where it was taken out behind it."""

    expectations: dict[str, list[dict[str, Any]]]
    """By speed-up: what had to be seen, as `described` gives it."""

    unwanted: tuple[Unwanted, ...]
    """What the step should not hold, whichever speed-ups stand. Empty in a file of before that was looked for."""

    left_out: dict[str, list[str]]
    """By speed-up: modules where it does not stand, each with the reason; those that it is not for, too."""

    kernels: tuple[dict[str, Any], ...]
    """What took most of the traced time: `name`, `phase`, `count`, `microseconds`, `share`. Of operators on the CPU."""

    facts: dict[str, Any]
    """What else was seen: launches, waits, copied bytes, documents; as `Evidence.facts` says, of what was traced or of the
    whole step. By name of a speed-up, what that has measured:
    compiled graphs with their seconds."""

    @classmethod
    def of(
        cls,
        decisions: Sequence[Decision],
        observations: Mapping[str, Observation],
        expectations: Mapping[str, Sequence[Expectation]],
        evidence: Evidence,
        machine: Machine,
        effect: EffectOf = lambda name: None,
        unwanted: tuple[Unwanted, ...] = (),
    ) -> Self:
        """What a traced step showed. observations, expectations: by name; of speed-ups that it had taken out, too."""
        return cls(
            evidence.step,
            evidence.seconds,
            evidence.device,
            evidence.has_device_events,
            machine,
            tuple(proved_rows(decisions, observations, effect)),
            {name: seen.to_json() for name, seen in observations.items()},
            {name: [described(one) for one in every] for name, every in expectations.items()},
            unwanted,
            {one.name: apart for one in decisions if one.installed and (apart := _apart(one.installed))},
            tuple(most_time(evidence)),
            {str(name): plain(value) for name, value in evidence.facts.items()}
            | {one.name: plain(one.installed.report()) for one in decisions if one.installed and one.installed.report},
        )

    @property
    def open(self) -> list[Row]:
        """Those that were to run and were not seen to run everywhere."""
        return [row for row in self.rows if row.is_open]

    @property
    def is_proved(self) -> bool:
        """Whether all that was to run was seen everywhere, and nothing beside it that should not be there."""
        return not self.open and not any(one.is_open for one in self.unwanted)

    @property
    def part(self) -> str:
        """` (2 of 8 micro-batches)`; empty where all were traced, or nothing was."""
        traced, of = self.facts.get("traced_micro_batches"), self.facts.get("micro_batches")
        if not isinstance(traced, list) or not isinstance(of, int) or len(traced) >= of or "not_traced" in self.facts:
            return ""
        return f" ({len(traced)} of {of} micro-batches)"

    def summary(self) -> str:
        """In a line: how many are engaged, and which are not."""
        engaged = sum(row.state is State.ENGAGED for row in self.rows)
        text = f"speed-ups: step {self.step} was traced{self.part}, which took {self.seconds:.1f} s beside it"
        return f"{text}: {engaged} engaged" + "".join(f", {row.name} {row.count}" for row in self.open)

    def to_json(self) -> dict[str, Any]:
        """Plain values, as they are read again."""
        body: dict[str, Any] = json.loads(json.dumps({"format": FORMAT, **asdict(self)}, allow_nan=False))
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises `ValueError`, `TypeError`, `KeyError` or `AttributeError` for what `to_json` did not give."""
        values = {name: value for name, value in body.items() if name != "format"}
        if body["format"] == 1:
            values["unwanted"] = ()
        elif body["format"] != FORMAT:
            raise ValueError(f"it has format {body['format']!r}, and this version reads {FORMAT}")
        rows = tuple(Row.from_json(row) for row in values["rows"])
        unwanted = tuple(Unwanted.from_json(one) for one in values["unwanted"])
        found = cls(**values | {"rows": rows, "unwanted": unwanted, "machine": Machine(**body["machine"])})
        if not isinstance(found.step, int) or not isinstance(found.seconds, int | float):
            raise TypeError("a step or a time that is no number")
        for kernel in found.kernels:
            float(kernel["microseconds"])
        return found

    @classmethod
    def read(cls, run: Path) -> Self:
        """Of a run folder, or of the file itself. Raises `ConfigError` where there is none that can be read."""
        path, shown = run / NAME if run.is_dir() else run, printable(str(run))
        if not run.exists():
            raise ConfigError(f"{shown} is not there. Name a run folder.")
        try:
            with path.open("rb") as file:
                content = file.read(LARGEST)
            return cls.from_json(json.loads(content))
        except FileNotFoundError:
            raise ConfigError(
                f"{shown} has no {NAME}: it is no run folder, or its run ended before a step was traced (the second or"
                " third)."
            ) from None
        except OSError as error:
            raise ConfigError(f"{printable(str(path))} cannot be read: {error.strerror or error}.") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            why = printable(f"{type(error).__name__}: {error}", 100)
            raise ConfigError(f"{printable(str(path))} is damaged, or none of ours ({why}).") from None


def _apart(installed: Installation) -> list[str]:
    return [*installed.left_out, *installed.excepted]


def described(one: Expectation) -> dict[str, Any]:
    """An expectation in words and names."""
    match one:
        case Expected():
            return {"what": one.what, "must": "be seen"} | {
                "phase": str(one.phase),
                "kernels": list(one.kernels),
                "operators": list(one.operators),
                "places": len(one.at),
                "each": one.each,
            }
        case Absent():
            return {"what": one.what, "must": "be absent"}
        case Holds():
            return {"what": one.what, "must": "hold"}


def most_time(evidence: Evidence, most: int = MOST_KERNELS) -> Iterable[dict[str, Any]]:
    """Kernels by time, those of one name and phase added up; where the device shows none, operators."""
    source = Source.KERNEL if evidence.has_device_events else Source.OPERATOR
    added: dict[tuple[str, str], tuple[int, float]] = {}
    for one in evidence.seen:
        if one.source is source:
            count, time = added.get((one.name, one.phase), (0, 0.0))
            added[one.name, one.phase] = count + one.count, time + one.microseconds
    total = sum(time for _, time in added.values()) or 1.0
    first = sorted(added.items(), key=lambda item: -item[1][1])[:most]
    for (name, phase), (count, time) in first:
        yield {
            "name": printable(name, 300),
            "phase": str(phase),
            "count": count,
            "microseconds": round(time, 1),
            "share": round(time / total, 4),
        }


def plain(value: Any) -> Any:
    """A fact as JSON takes it: tensors and arrays as lists, what has no form there in words."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in (value if isinstance(value, list | tuple) else sorted(value, key=str))]
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)
