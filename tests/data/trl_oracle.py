"""TRL's own preparation of a data set, run as it is: the oracle of the parity tests."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

trl = pytest.importorskip("trl", reason="trl is the oracle of the parity tests")
TEMPLATES = Path(trl.__file__).parent / "chat_templates"


def bundled_template(name: str) -> str:
    """A family's original chat template, as TRL bundles it for recognition."""
    return (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


def trl_prepare(
    tokenizer: Any, rows: list[dict[str, Any]], *, assistant_only: bool = False, completion_only: bool | None = None
) -> list[tuple[list[int], list[int]]]:
    """Token ids and labels of each row by `SFTTrainer._prepare_dataset`, untruncated.

    The trainer object is made without a model: the few attributes that the method reads are set as `__init__` does.
    """
    import datasets
    from trl import SFTTrainer
    from trl.chat_template_utils import get_training_chat_template, has_generation_markers

    datasets.disable_progress_bars()
    trainer = SFTTrainer.__new__(SFTTrainer)
    trainer._tokenizer = tokenizer
    trainer.completion_only_loss = "prompt" in rows[0] if completion_only is None else completion_only
    trainer.chat_template = None
    if assistant_only and not has_generation_markers(tokenizer.chat_template):
        trainer.chat_template = get_training_chat_template(tokenizer)
    arguments = SimpleNamespace(
        dataset_num_proc=None,
        dataset_text_field="text",
        assistant_only_loss=assistant_only,
        max_length=None,
        shuffle_dataset=False,
    )
    prepared = trainer._prepare_dataset(datasets.Dataset.from_list(rows), tokenizer, arguments, False, None, "test")
    return [(row["input_ids"], row["labels"]) for row in prepared]


def trl_prepare_pairs(
    tokenizer: Any, rows: list[dict[str, Any]], max_length: int | None = None, mode: str = "keep_start"
) -> list[tuple[list[int], list[int], list[int]]]:
    """Prompt, chosen and rejected token ids of each row by `DPOTrainer._prepare_dataset`, without those that it drops."""
    import datasets
    from trl import DPOTrainer

    datasets.disable_progress_bars()
    trainer = DPOTrainer.__new__(DPOTrainer)
    trainer._tokenizer = tokenizer
    arguments = SimpleNamespace(dataset_num_proc=None, max_length=max_length, truncation_mode=mode)
    prepared = trainer._prepare_dataset(datasets.Dataset.from_list(rows), tokenizer, arguments, "test")
    return [(row["prompt_ids"], row["chosen_ids"], row["rejected_ids"]) for row in prepared]
