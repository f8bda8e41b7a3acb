"""Promise: same model, hyper-parameters and order of data give TRL's loss at every step, to 1e-5 relative, packed or plain.

Both sides start from copies of one model and see the rows in the order of the data (`train_sampling_strategy: sequential`),
in float32 on the CPU, without dropout.
"""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from rich.console import Console
from transformers import PreTrainedModel, TrainerCallback

from dynotune import SFTConfig, train_sft
from tests.tiny import chats, completions, plain_texts, tiny_model, tiny_tokenizer

STEPS = 20
FORMATS = {
    "messages": (chats, {}),
    "messages, assistant only": (chats, {"assistant_only_loss": True}),
    "prompt/completion": (completions, {}),
    "prompt/completion, full loss": (completions, {"completion_only_loss": False}),
    "text": (plain_texts, {}),
}
COMMON: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "max_steps": STEPS,
    "logging_steps": 1,
    "save_strategy": "no",
    "train_sampling_strategy": "sequential",
    "report_to": "none",
}


def lora(model: PreTrainedModel) -> PreTrainedModel:
    """The model under LoRA, with a second matrix that is not zero so that both matrices get gradients from step 1."""
    wrapped = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    generator = torch.Generator().manual_seed(3)
    for name, p in wrapped.named_parameters():
        if "lora_B" in name:
            p.data = 0.02 * torch.randn(p.shape, generator=generator)
    return wrapped  # type: ignore[return-value]


def losses_of_trl(
    model: PreTrainedModel, rows: list[dict[str, Any]], folder: Path, **settings: Any
) -> list[dict[str, float]]:
    from datasets import Dataset
    from trl import SFTConfig as TRLConfig
    from trl import SFTTrainer

    args = TRLConfig(
        output_dir=str(folder / "trl"), gradient_checkpointing=False, disable_tqdm=True, **COMMON, **settings
    )
    trainer = SFTTrainer(
        model=model, args=args, train_dataset=Dataset.from_list(rows), processing_class=tiny_tokenizer()
    )
    trainer.train()
    return [row for row in trainer.state.log_history if "loss" in row]


def losses_of_ours(
    model: PreTrainedModel, rows: list[dict[str, Any]], folder: Path, **settings: Any
) -> list[dict[str, float]]:
    result = train_sft(
        SFTConfig(output_dir=str(folder / "ours"), **COMMON, **settings),
        model=model,
        tokenizer=tiny_tokenizer(),
        train_dataset=rows,
        console=Console(quiet=True),
    )
    return [row for row in result.metrics if "loss" in row]


def worst(ours: list[dict[str, float]], theirs: list[dict[str, float]], key: str) -> float:
    assert [row["step"] for row in ours] == [row["step"] for row in theirs] == list(range(1, STEPS + 1))
    return max(abs(a[key] - b[key]) / max(abs(b[key]), 1e-12) for a, b in zip(ours, theirs, strict=True))


DEFAULTS = {"per_device_train_batch_size": 2, "learning_rate": 1e-3}

CASES = [
    # (architecture, adapter, format, settings): every value of the gate appears, and every pair that could interact
    ("llama", False, "messages", {}),
    ("llama", True, "messages", {"gradient_accumulation_steps": 4, "weight_decay": 0.1}),
    ("llama", False, "messages, assistant only", {"gradient_accumulation_steps": 4, "lr_scheduler_type": "cosine"}),
    ("llama", True, "messages, assistant only", {"warmup_steps": 5, "max_grad_norm": 0.2}),
    ("qwen2", False, "prompt/completion", {"weight_decay": 0.1, "max_grad_norm": 0.2}),
    ("qwen2", True, "prompt/completion", {"gradient_accumulation_steps": 4, "lr_scheduler_type": "cosine"}),
    ("qwen2", False, "text", {"gradient_accumulation_steps": 4, "warmup_steps": 0.2}),
    ("qwen3", False, "text", {"lr_scheduler_type": "cosine", "max_grad_norm": 0.2, "weight_decay": 0.1}),
    ("qwen3", True, "text", {"gradient_accumulation_steps": 4}),
    ("qwen3", False, "messages, assistant only", {"max_length": 24}),
    ("gemma", False, "messages", {"gradient_accumulation_steps": 4, "lr_scheduler_type": "cosine"}),
    ("gemma", True, "prompt/completion, full loss", {"weight_decay": 0.1, "max_length": 12}),
    ("gemma", True, "messages, assistant only", {"max_grad_norm": 0.2, "warmup_steps": 3}),
    ("llama", False, "prompt/completion", {"loss_type": "dft", "learning_rate": 2e-4}),
    ("llama", True, "text", {"label_smoothing_factor": 0.1}),
    ("llama", False, "text", {"optim": "sgd", "truncation_mode": "keep_end", "max_length": 10}),
    ("qwen2", False, "messages", {"optim": "adafactor"}),
]


IN_EVERY_RUN = (1, 2, 4, 7, 11, 13)
"""Of `CASES`: each format and architecture, in full and under LoRA. The others are long tests."""


@pytest.mark.parametrize(
    ("kind", "adapter", "form", "settings"),
    [pytest.param(*case, marks=() if i in IN_EVERY_RUN else pytest.mark.long) for i, case in enumerate(CASES)],
)
def test_every_step_has_trls_loss(
    kind: str, adapter: bool, form: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    make, more = FORMATS[form]
    settings = {**DEFAULTS, **more, **settings}
    rows = make(2 * settings.get("gradient_accumulation_steps", 1) * 12)
    model = tiny_model(kind)
    if adapter:
        model = lora(model)
    theirs = losses_of_trl(copy.deepcopy(model), copy.deepcopy(rows), tmp_path, **settings)
    # Rows that truncation leaves without a label are dropped there without a word; here they must be skipped by name.
    for execution in ("on", "off"):
        more = {"on_bad_row": "skip", "packed_execution": execution}
        ours = losses_of_ours(copy.deepcopy(model), rows, tmp_path / execution, **more, **settings)
        assert worst(ours, theirs, "loss") < 1e-5, execution
        assert worst(ours, theirs, "grad_norm") < 1e-3, execution
        assert worst(ours, theirs, "learning_rate") < 1e-9
    assert theirs[0]["loss"] != theirs[-1]["loss"]


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    """Negative control: another order of the same rows, or another weight decay, does not pass."""
    model, rows = tiny_model(), chats(24)
    theirs = losses_of_trl(copy.deepcopy(model), copy.deepcopy(rows), tmp_path, **DEFAULTS)
    swapped = [rows[1], rows[2], rows[0], *rows[3:]]
    ours = losses_of_ours(copy.deepcopy(model), swapped, tmp_path / "a", **DEFAULTS)
    assert worst(ours, theirs, "loss") > 1e-3
    ours = losses_of_ours(copy.deepcopy(model), rows, tmp_path / "b", **{**DEFAULTS, "weight_decay": 0.5})
    assert worst(ours, theirs, "loss") > 1e-5


class SameAdapter(TrainerCallback):
    """Gives every adapter weight a value that depends on its place alone, whatever either side drew for it."""

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        generator = torch.Generator().manual_seed(11)
        with torch.no_grad():
            for name, p in sorted(model.named_parameters()):
                if p.requires_grad:
                    assert "lora_" in name
                    p.copy_(0.05 * torch.randn(p.shape, generator=generator))


@pytest.mark.parametrize(
    "keys",
    [
        {"lora_r": 4, "lora_alpha": 8, "lora_target_modules": ["q_proj", "down_proj"]},
        {"lora_r": 3, "lora_alpha": 7, "use_rslora": True},  # PEFT's own targets, as in TRL
        {"lora_r": 4, "use_dora": True, "lora_target_modules": ["v_proj", "up_proj"]},
    ],
)
def test_the_lora_keys_mean_what_trls_mean(keys: dict[str, Any], tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import ModelConfig, SFTTrainer, get_peft_config
    from trl import SFTConfig as TRLConfig

    keys = {"use_peft": True, "lora_dropout": 0.0, **keys}
    model, rows = tiny_model(), chats(48)
    trainer = SFTTrainer(
        model=copy.deepcopy(model),
        args=TRLConfig(
            output_dir=str(tmp_path / "trl"), gradient_checkpointing=False, disable_tqdm=True, **COMMON, **DEFAULTS
        ),
        train_dataset=Dataset.from_list(copy.deepcopy(rows)),
        processing_class=tiny_tokenizer(),
        peft_config=get_peft_config(ModelConfig(**keys)),
        callbacks=[SameAdapter()],
    )
    trainer.train()
    result = train_sft(
        SFTConfig(output_dir=str(tmp_path / "ours"), **COMMON, **DEFAULTS, **keys),
        model=copy.deepcopy(model),
        tokenizer=tiny_tokenizer(),
        train_dataset=rows,
        callbacks=[SameAdapter()],
        console=Console(quiet=True),
    )
    theirs = [row for row in trainer.state.log_history if "loss" in row]
    assert worst([row for row in result.metrics if "loss" in row], theirs, "loss") < 1e-5
