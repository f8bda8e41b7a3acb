"""The loss curves of a run, read from its `metrics.jsonl`."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynotune.errors import DataError
from dynotune.show.ticks import round_ticks


@dataclass(frozen=True, slots=True)
class Curve:
    """One loss over steps. `losses[i]` belongs to `steps[i]`; steps rise; every loss is finite."""

    name: str
    """`train`, `eval`, or the evaluation set's name as in `eval_<name>_loss`."""

    steps: list[int]
    losses: list[float]
    not_finite: int = 0
    """Steps or evaluations that are left out because they were NaN or infinite."""

    @property
    def is_train(self) -> bool:
        return self.name == "train"


def read_curves(metrics: Path) -> list[Curve]:
    """The training curve first, then one per evaluation set; a curve without a point is left out.

    Where a resumed run logged a step twice, the later line counts: it is the one that led to the weights. A last line
    without an end is what a killed process leaves and is passed over.

    Raises:
        DataError: another line of the file is not a JSON object.
    """
    points: dict[str, dict[int, float]] = {}
    lines = metrics.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise DataError(f"{metrics}:{number}: not JSON ({error.msg}). Delete that line to go on.") from error
        if not isinstance(row, dict):
            raise DataError(f"{metrics}:{number}: not a JSON object. Delete that line to go on.")
        step = row.get("step")
        if not isinstance(step, int):
            continue
        if "nonfinite" in row:
            points.setdefault("train", {})[step] = math.nan
        for key, value in row.items():
            name = _curve_name(key)
            if name is not None and (loss := _number(value)) is not None:
                points.setdefault(name, {})[step] = loss
    names = sorted(points, key=lambda name: (name != "train", name != "eval", name))
    return [curve for name in names if (curve := _curve(name, points[name])).steps]


def finite(value: Any) -> float | None:
    """The value of a JSON number that is one; None for all else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _curve_name(key: str) -> str | None:
    if key == "loss":
        return "train"
    if key == "eval_loss":
        return "eval"
    if key.startswith("eval_") and key.endswith("_loss"):
        return key.removeprefix("eval_").removesuffix("_loss")
    return None


def _number(value: Any) -> float | None:
    # JSON has no NaN: writers leave null or a string, Python's leaves NaN. All mean "logged, and not a number".
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    return math.nan if value is None or value in ("NaN", "Infinity", "-Infinity") else None


def _curve(name: str, by_step: dict[int, float]) -> Curve:
    finite = {step: loss for step, loss in sorted(by_step.items()) if math.isfinite(loss)}
    return Curve(name, list(finite), list(finite.values()), len(by_step) - len(finite))


@dataclass(frozen=True, slots=True)
class Axes:
    """The ranges and tick marks that hold all curves of a picture."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    x_ticks: list[float]
    y_ticks: list[float]

    def x(self, step: float) -> float:
        """Place of a step between the left (0) and the right (1) end."""
        return (step - self.x_low) / (self.x_high - self.x_low)

    def y(self, loss: float) -> float:
        """Place of a loss between the bottom (0) and the top (1)."""
        return (loss - self.y_low) / (self.y_high - self.y_low)


def axes_for(curves: list[Curve], x_ticks: int, y_ticks: int, *, from_zero: bool = False) -> Axes:
    """Axes on round numbers. The loss axis begins at 0 unless all losses lie in its upper half; with `from_zero` always."""
    steps = [step for curve in curves for step in curve.steps]
    losses = [loss for curve in curves for loss in curve.losses]
    low, high = min(losses), max(losses)
    if 0 < low < high / 2 or (from_zero and low > 0):
        low = 0.0
    y = round_ticks(low, high, y_ticks)
    x_low, x_high = float(min(steps)), float(max(steps))
    x_low = 0.0 if x_low < x_high / 2 else x_low
    x = [tick for tick in round_ticks(x_low, x_high, x_ticks, whole=True) if x_low <= tick <= x_high]
    if x_low == x_high:
        x_low, x_high = x_low - 1, x_high + 1
    return Axes(x_low, x_high, y[0], y[-1], x, y)
