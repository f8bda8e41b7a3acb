"""What one way of training adds to the flow of a run: what is minimised, over what, and what must be known before it."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from rich.console import Console

from dynotune.execution.paths import Paths
from dynotune.objectives.counted import Counted
from dynotune.parallel.ranks import Ranks
from dynotune.train.start.execution import Execution
from dynotune.train.start.material import Material

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Start:
    """A run whose model stands with its speed-ups in, before a checkpoint is restored and before the first step."""

    execution: Execution
    material: Material
    model: "PreTrainedModel"
    device: torch.device
    ranks: Ranks
    resumed: bool
    """Whether a checkpoint will be restored."""

    as_in_files: bool
    """`Prepared.as_in_files`."""

    trained: bool
    """`Opened.trained`."""

    continued_adapter: bool
    """Whether the adapter came with the model: it is a part of what the run starts from."""

    rehearsal: bool
    """Whether one process stands for all of them, and no run is written."""

    say: Callable[[str], None]
    console: Console


class Recipe(Protocol):
    """One way of training. There is one flow and one loop for all of them."""

    @property
    def objective(self) -> Counted: ...

    @property
    def paths(self) -> Paths:
        """The ways in which a micro-batch of it can be executed."""
        ...

    def on_model(self, model: "PreTrainedModel", undo: ExitStack) -> list[str]:
        """Change the model as the method needs it; `undo` gives it back. Returns what is to be said."""
        ...

    def before_first_step(self, start: Start) -> list[str]:
        """Compute what every step needs. Returns what was said of it, for the run's record; raises `TrainingError` where it
        is not sound."""
        ...
