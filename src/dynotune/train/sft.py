"""Supervised fine-tuning."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from dynotune.config.sft import SFTConfig
from dynotune.execution.paths import DocumentPaths
from dynotune.objectives.sft import SFTObjective
from dynotune.train.flow import RunResult, fine_tune, prove
from dynotune.train.outside.signals import listening
from dynotune.train.start.given import Given
from dynotune.train.start.recipe import Start

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback


@listening()
def train_sft(
    config: SFTConfig,
    *,
    model: "PreTrainedModel | None" = None,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    train_dataset: Any = None,
    eval_dataset: Any = None,
    callbacks: "Sequence[TrainerCallback]" = (),
    peft_config: "PeftConfig | None" = None,
    console: Console | None = None,
) -> RunResult:
    """Fine-tune by `config` and return where everything is.

    model, tokenizer: your own instead of `model_name_or_path`; a PeftModel is trained as it is.
    train_dataset, eval_dataset: a `datasets.Dataset` or a list of dicts; eval_dataset may be a dict of several.
    callbacks: instances of `transformers.TrainerCallback`.
    peft_config: a PEFT configuration instead of the `lora_*` keys.
    console: where to print; default the terminal.

    Raises `ConfigError`, `DataError`, `TemplateError` or `ModelError` before the first step, `TrainingError` after it.
    Raises `Interrupted` where SIGINT, SIGTERM or `max_time` ended the run before its last step: it is saved. In the main
    thread only are signals heard; handlers that were there are put back, and called once the run is saved.
    """
    given = Given(model, tokenizer, train_dataset, eval_dataset, callbacks, peft_config)
    return fine_tune(config, SFTRecipe(config), given, console)


def prove_sft(config: SFTConfig, console: Console | None = None) -> dict[str, Any]:
    """Do what a run of `config.gpus` processes does, on this one alone and up to the first update; write no run.

    Returns the figures of the largest micro-batch. Raises what the run would.
    """
    return prove(config, SFTRecipe(config), console)


class SFTRecipe:
    """Documents, by the loss of their label tokens."""

    def __init__(self, config: SFTConfig) -> None:
        self.objective = SFTObjective(config)
        self.paths = DocumentPaths(self.objective)

    def on_model(self, model: "PreTrainedModel", undo: ExitStack) -> list[str]:
        return []

    def before_first_step(self, start: Start) -> list[str]:
        return []  # a step needs its documents only

    def before_steps(self, rows: NDArray[np.int64]) -> bool:
        return False
