"""Whether MFU can be told for a run, and from what: the model's FLOPs and the device's peak, or the reason why not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynotune.measure.flops import Flops, StepFlops
from dynotune.measure.peaks import Peak, peak_of
from dynotune.measure.products import CannotCountError
from dynotune.plan.plan import Step

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Utilisation:
    """FLOPs of steps and of devices. Without both there is no MFU, and `why_not` says why."""

    flops: Flops | None = None
    peak: Peak | None = None
    why_not: str | None = None
    labelled_rows_head: bool = False
    """Logits are computed for label tokens only; otherwise for every token."""

    devices: int = 1
    """Devices that share the steps. FLOPs of a step are those of all of them, from the plan."""

    @classmethod
    def of(
        cls,
        model: "PreTrainedModel",
        device: "torch.device",
        given_tflops: float | None = None,
        *,
        labelled_rows_head: bool = False,
        devices: int = 1,
    ) -> "Utilisation":
        """For a prepared model: adapters, checkpointing and attention in place. Never raises for what is not known."""
        peak = peak_of(device, given_tflops)
        if isinstance(peak, str):
            return cls(why_not=peak, devices=devices)
        try:
            flops = Flops.of(model)
        except CannotCountError as error:
            return cls(why_not=f"{error}, so the FLOPs of this model are not known", devices=devices)
        return cls(flops, peak, None, labelled_rows_head, devices)

    def of_step(self, step: Step) -> StepFlops:
        """FLOPs of a step of the plan; zero where MFU cannot be told."""
        return self.flops.of_step(step, self.labelled_rows_head) if self.flops else _NONE

    def of_steps(self, steps: Sequence[Step]) -> StepFlops:
        """The same of several together."""
        return self.flops.of_steps(steps, self.labelled_rows_head) if self.flops else _NONE

    def available_flops(self, seconds: float) -> float:
        """What all devices together could have done in `seconds`; zero where MFU cannot be told."""
        return self.peak.flops * self.devices * seconds if self.peak else 0.0


_NONE = StepFlops(0, 0)
