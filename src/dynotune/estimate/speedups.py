"""Which speed-ups a planned run will take, as far as its shapes and its configuration tell."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dynotune.config.whole import WholeConfig
from dynotune.plan.pairs import PairSpans
from dynotune.plan.truncation import Units, as_predicting
from dynotune.results.effects import effects_of
from dynotune.speedups.choose import Decision, decide, settle
from dynotune.speedups.contract import Context
from dynotune.speedups.registry import speedups
from dynotune.speedups.remembered import Remembered
from dynotune.speedups.table import Row, State, planned_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from dynotune.speedups.installed import Installed


@dataclass(frozen=True, slots=True)
class PlannedSpeedups:
    """What was decided, without a GPU or weights."""

    context: Context
    decisions: list[Decision]
    remembered: Remembered | None
    """What this machine found out before, where it is the one that is planned for."""

    @classmethod
    def of(cls, context: Context) -> "PlannedSpeedups":
        """What failed on this machine counts where this machine is the one that is planned for. Raises `ConfigError` where
        something is `on` and cannot be, as the run would."""
        import torch

        here = not context.on_gpu or torch.cuda.is_available()
        remembered = Remembered.here(context.device) if here else None
        refusal = (remembered or Remembered.nothing()).refusal
        context = context if here else replace(context, plan=None)
        return cls(context, decide(context.config, context, speedups(), refusal), remembered)

    def takes(self, name: str) -> bool:
        return any(one.name == name and one.no is None for one in self.decisions)

    def slots(self) -> set[str]:
        """Those in which there is one. Compiled layers keep what kernels keep, at most: they fuse the same operations."""
        there = {one.speedup.slot for one in self.decisions if one.no is None and one.speedup.slot is not None}
        return there | {"rms_norm", "gated_activation", "rotary"} if self.takes("compiled_layers") else there

    def in_skeleton(self, shaped: "PreTrainedModel") -> "Installed":
        """Those that can be put into `shaped`, whose linears and kernels keep what those of a run keep; to be closed. One
        that finds no place there is left out, as it will be in the run: `ConfigError` where it is `on`."""
        from contextlib import nullcontext

        from dynotune.speedups.installed import Installed
        from dynotune.speedups.site import Site

        some = [one for one in self.decisions if one.speedup.in_skeletons]
        installed = Installed(some, Site(replace(self.context, model=shaped), nullcontext))
        settle(self.decisions, self.context)  # who stood back behind one that was left out is taken now
        return installed

    def rows(self) -> list[Row]:
        """For the table."""
        if self.remembered is None:
            return [_to_be_tried(row) for row in planned_rows(self.decisions, lambda name: None)]
        return planned_rows(
            self.decisions, effects_of(self.remembered.machine, self.context.work, self.context.parameters)
        )


def as_laid_out(units: Units, config: WholeConfig, rows: Sequence[Row]) -> Units:
    """`units` as a run lays them out that takes the speed-ups of the table `rows`, empty where it is not known."""
    left_out = any(row.name == "shared_prompt" and row.state is State.LEFT_OUT for row in rows)
    whole = left_out or config.execution[0] == "off" or config.speedups.get("shared_prompt") == "off"
    if isinstance(units, PairSpans):
        return units.apart() if whole else units
    return units if config.execution[0] == "off" else as_predicting(units)


def _to_be_tried(row: Row) -> Row:
    """Which attention package works on a GPU is not known before they are tried there."""
    one = speedups()[row.name]
    if row.state is not State.CHOSEN or one.package is None or one.slot != "attention":
        return row
    return replace(row, evidence=f"{row.evidence} Where its package works on that GPU, else the next of its kind.")
