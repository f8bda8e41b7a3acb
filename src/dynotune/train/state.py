"""What is trained and how far: the live objects that a checkpoint holds and a resume restores."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from dynotune.measure.totals import Totals
from dynotune.measure.wall import Account
from dynotune.measure.words import DEFINITIONS

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(slots=True)  # not frozen: one is made in each step
class DoneStep:
    """What a row of metrics.jsonl needs to know of a step."""

    number: int
    epoch: float
    label_tokens: int
    learning_rate: float
    loss: float
    grad_norm: float
    sums: tuple[float, ...]
    """Of the objective, each as it is summed over the step."""

    counts: tuple[int, ...]
    """What each of them is divided by."""


@dataclass(slots=True)
class OpenRow:
    """Steps since the last row of metrics.jsonl. A checkpoint holds them, so that no cut shows in the next row."""

    steps: list[DoneStep] = field(default_factory=list)
    """Those that were finite."""

    taken: int = 0
    seconds: float = 0.0
    totals: Totals = field(default_factory=Totals)
    account: Account = field(default_factory=dict)
    """Of the whole wall time since the last row."""


@dataclass(slots=True)
class Progress:
    """Where a run stands: everything that is counted and goes on after a resume."""

    step: int = 0
    tokens: int = 0
    """Tokens of the documents trained on so far, whole, as TRL counts them."""

    label_tokens: int = 0
    examples: int = 0
    train_seconds: float = 0.0
    loss_sum: float = 0.0
    """Sum of the losses of the steps that were finite, and how many they were."""

    finite_steps: int = 0
    best_metric: float | None = None
    best_step: int | None = None
    evaluations_without_gain: int = 0
    owes_evaluation: bool = False
    """Whether the step's evaluation was left because the run had to end."""

    skipped_steps: list[int] = field(default_factory=list)
    """Steps whose loss or gradient was not finite."""

    micro_batch_tokens: int | None = None
    """To how many tokens micro-batches were lowered when memory ran out, and on which device that was."""

    device: str | None = None
    out_of_memory: list[dict[str, Any]] = field(default_factory=list)
    """Each time that memory ran out and the run went on: at which step, to how many tokens, what was asked for."""

    reference: str | None = None
    """Names the weights that the run is measured against; None where there are none."""

    open_row: OpenRow = field(default_factory=OpenRow)

    totals: Totals = field(default_factory=Totals)
    """What the figures of the whole run follow from."""

    steady: Totals = field(default_factory=Totals)
    """The same without each process's first steps."""

    account: Account = field(default_factory=dict)
    """What the wall time of all processes of the run went to, in seconds by kind."""

    def __post_init__(self) -> None:
        """From a checkpoint the sums come as plain JSON. Those of other definitions are not carried on: they would mix."""
        for name in ("totals", "steady"):
            sums = getattr(self, name)
            if isinstance(sums, dict):
                setattr(self, name, _totals_of(sums))
        row: Any = self.open_row
        if isinstance(row, dict):
            self.open_row = OpenRow()
            if all("counts" in step for step in row["steps"]):  # else of a version whose sums were divided already
                steps = [
                    DoneStep(**{**step, "sums": tuple(step["sums"]), "counts": tuple(step["counts"])})
                    for step in row["steps"]
                ]
                self.open_row = OpenRow(
                    steps, row["taken"], row["seconds"], _totals_of(row["totals"]), row.get("account", {})
                )

    def forget_best(self) -> None:
        """The next evaluation is the first one that counts."""
        self.best_metric = self.best_step = None
        self.evaluations_without_gain = 0


def _totals_of(sums: dict[str, Any]) -> Totals:
    return Totals(**sums) if sums["definitions"] == DEFINITIONS else Totals()


@dataclass(slots=True)
class Trainee:
    """What a checkpoint holds and a resume restores."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    optimizer: torch.optim.Optimizer
    schedule: "LRScheduler"
    progress: Progress
    plan: dict[str, Any]
    """What the plan says of its steps (`Plan.content`): step N means the same examples only under the same plan."""

    settings: dict[str, Any]
    """The resolved configuration without secrets, which a resume is compared with (`checkpoints.decisions`)."""

    @property
    def is_adapter(self) -> bool:
        return hasattr(self.model, "peft_config")
