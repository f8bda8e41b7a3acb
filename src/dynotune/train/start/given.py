"""What a caller of a run brings as objects."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback


@dataclass(frozen=True, slots=True)
class Given:
    """What a caller brings as objects, instead of naming it in the configuration."""

    model: "PreTrainedModel | None" = None
    """A PeftModel is trained as it is."""

    tokenizer: "PreTrainedTokenizerBase | None" = None
    train_dataset: Any = None
    """A `datasets.Dataset` or a list of dicts."""

    eval_dataset: Any = None
    """The same, or a dict of several."""

    callbacks: "Sequence[TrainerCallback]" = ()
    peft_config: "PeftConfig | None" = None
    """Instead of the `lora_*` keys."""


def came_with_adapter(given: Given, use_peft: bool) -> bool:
    """Whether `given.model` had an adapter before the run. A new one leaves its mark on the caller's model, too: PEFT writes
    `peft_config` into what it wraps."""
    is_new = use_peft or given.peft_config is not None  # refused where there was one already
    return not is_new and hasattr(given.model, "peft_config")
