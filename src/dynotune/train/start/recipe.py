"""What one way of training adds to the flow of a run: what is minimised, over what, and what must be known before it."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from dynotune.execution.paths import Paths
from dynotune.objectives.counted import Counted
from dynotune.parallel.ranks import Ranks
from dynotune.train.start.execution import Execution
from dynotune.train.start.material import Material

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Measured(NamedTuple):
    """A run that is only measured: it has no end of its own, and few of its steps are taken."""

    steps: int
    """That are sure to be enough, from the first on."""

    goes_on: bool = False
    """Whether others may be taken behind these: `Recipe.before_steps` is told which documents they hold."""


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
    measured: Measured | None = None
    """None: every step of the plan is taken."""


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

    def before_steps(self, rows: NDArray[np.int64]) -> bool:
        """Of a run that is only measured: compute what steps with these documents need, as far as it is not there. Whether
        something was computed."""
        ...
