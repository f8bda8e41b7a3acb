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
