"""Which speed-ups a planned run will take, as far as its shapes and its configuration tell."""

from collections.abc import Sequence
from dataclasses import replace

from dynotune.config.whole import WholeConfig
from dynotune.estimate.memory import StepMemory, Target
from dynotune.plan.pairs import PairSpans
from dynotune.plan.plan import Plan
from dynotune.plan.truncation import Units
from dynotune.results.effects import effects_of
from dynotune.speedups.choose import decide
from dynotune.speedups.contract import Context
from dynotune.speedups.registry import speedups
from dynotune.speedups.remembered import Remembered
from dynotune.speedups.table import Row, State, planned_rows


def planned_speedups(config: WholeConfig, memory: StepMemory, target: Target, longest: int, plan: Plan) -> list[Row]:
    """Rows for the table. What failed on this machine counts where this machine is the one that is planned for.

    longest: tokens of the longest document. Raises `ConfigError` where something is `on` and cannot be, as the run would.
    """
    import torch

    device = torch.device(target.type)
    here = target.type == "cpu" or torch.cuda.is_available()
    context = Context(
        config, memory.model, device, memory.compute, memory.precision, longest, live=False, plan=plan if here else None
    )
    remembered = Remembered.here(device) if here else Remembered.nothing()
    effect = effects_of(remembered.machine, context.work) if here else lambda name: None
    rows = planned_rows(decide(config, context, speedups(), remembered.refusal), effect)
    return rows if here else [_to_be_tried(row) for row in rows]


def as_laid_out(units: Units, config: WholeConfig, rows: Sequence[Row]) -> Units:
    """`units` as a run lays them out that takes the speed-ups of the table `rows`, empty where it is not known."""
    left_out = any(row.name == "shared_prompt" and row.state is State.LEFT_OUT for row in rows)
    whole = left_out or config.execution[0] == "off" or config.speedups.get("shared_prompt") == "off"
    return units.apart() if whole and isinstance(units, PairSpans) else units


def _to_be_tried(row: Row) -> Row:
    """Which attention package works on a GPU is not known before they are tried there."""
    one = speedups()[row.name]
    if row.state is not State.CHOSEN or one.package is None or one.slot != "attention":
        return row
    return replace(row, evidence=f"{row.evidence} Where its package works on that GPU, else the next of its kind.")
