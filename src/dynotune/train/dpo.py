"""Preference training: pairs of answers, measured against the model that training starts from."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from dynotune.config.dpo import DPOConfig
from dynotune.execution.paths import PairPaths
from dynotune.model.dropout import without_dropout
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.train.flow import RunResult, fine_tune, prove
from dynotune.train.outside.signals import listening
from dynotune.train.preference.bring import Bringing, bring_reference
from dynotune.train.start.given import Given
from dynotune.train.start.recipe import Start

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback


@listening()
def train_dpo(
    config: DPOConfig,
    *,
    model: "PreTrainedModel | None" = None,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    train_dataset: Any = None,
    eval_dataset: Any = None,
    callbacks: "Sequence[TrainerCallback]" = (),
    peft_config: "PeftConfig | None" = None,
    console: Console | None = None,
) -> RunResult:
    """Train on preferences by `config` and return where everything is.

    The reference is the model that training starts from: with a new adapter the model without it, else the model as it is.

    model, tokenizer: your own instead of `model_name_or_path`; a PeftModel is trained as it is.
    train_dataset, eval_dataset: a `datasets.Dataset` or a list of dicts, a pair a row; eval_dataset may be several by name.
    callbacks: instances of `transformers.TrainerCallback`.
    peft_config: a PEFT configuration instead of the `lora_*` keys.
    console: where to print; default the terminal.

    Raises `ConfigError`, `DataError`, `TemplateError` or `ModelError` before the first step, and `TrainingError` after it or
    where the policy and its reference differ before it. Raises `Interrupted` where SIGINT, SIGTERM or `max_time` ended the
    run before its last step: it is saved (`train_sft` says more of signals).
    """
    given = Given(model, tokenizer, train_dataset, eval_dataset, callbacks, peft_config)
    return fine_tune(config, DPORecipe(config), given, console)


def prove_dpo(config: DPOConfig, console: Console | None = None) -> dict[str, Any]:
    """Do what a run of `config.gpus` processes does, on this one alone and up to the first update; write no run.

    Returns the figures of the largest micro-batch. Raises what the run would.
    """
    return prove(config, DPORecipe(config), console)


class DPORecipe:
    """Pairs, by losses of their answers' log-probabilities."""

    def __init__(self, config: DPOConfig) -> None:
        self.config = config
        self.objective = PreferenceObjective(config)
        self.paths = PairPaths(self.objective)
        self._bringing: Bringing | None = None

    def on_model(self, model: "PreTrainedModel", undo: ExitStack) -> list[str]:
        return without_dropout(model, undo) if self.config.disable_dropout else []

    def before_first_step(self, start: Start) -> list[str]:
        """The reference of every pair; and the policy, which is still its own reference, is seen to compute the same."""
        told, self._bringing = bring_reference(self.config, self.objective, start)
        return told

    def before_steps(self, rows: NDArray[np.int64]) -> bool:
        """The reference of these pairs. Under an adapter the model without it is still there while it trains."""
        return self._bringing is not None and self._bringing.more(rows)
