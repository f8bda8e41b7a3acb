"""Promise: same model, pairs and order give TRL's DPO loss and metrics at every step, to 1e-5 relative, packed or plain.

Both sides start from copies of one model, which is their reference too, and see the pairs in the order of the data
(`train_sampling_strategy: sequential`), in float32 on the CPU, without dropout.
"""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from rich.console import Console
from transformers import PreTrainedModel, TrainerCallback

from dynotune import DPOConfig, train_dpo
from tests.tiny import sentences, tiny_model, tiny_tokenizer

STEPS = 20
COMMON: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "max_steps": STEPS,
    "logging_steps": 1,
    "save_strategy": "no",
    "train_sampling_strategy": "sequential",
    "report_to": "none",
    "per_device_train_batch_size": 2,
    "learning_rate": 1e-3,
}
METRICS = (
    "grad_norm",
    "rewards/chosen",
    "rewards/rejected",
    "rewards/margins",
    "logps/chosen",
    "logps/rejected",
)
OF_TOKENS = ("entropy", "mean_token_accuracy", "logits/chosen", "logits/rejected")
"""Means over tokens: TRL averages those of a step's batches, ours are over the step, so they agree for one batch only."""


def pairs(n: int) -> list[dict[str, Any]]:
    texts = sentences(3 * n, seed=7)
    rows = []
    for i in range(n):
        prompt, good, bad = next(texts), next(texts), next(texts)
        if i % 3 == 2:  # both answers begin alike, and one is long
            good, bad = f"{bad.split()[0]} {good}", f"{bad} {good}"
        rows.append({"prompt": prompt, "chosen": f" {good}", "rejected": f" {bad}"})
    return rows


def new_adapter() -> LoraConfig:
    # A second matrix of zeros: policy and reference begin alike, as in every real run.
    return LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj"], task_type="CAUSAL_LM")


class SameStart(TrainerCallback):
    """Gives the first matrix of every adapter values that depend on its name alone, whatever either side drew for it."""

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        generator = torch.Generator().manual_seed(11)
        with torch.no_grad():
            for name, p in sorted(model.named_parameters()):
                if "lora_A" in name and p.requires_grad:
                    p.copy_(0.2 * torch.randn(p.shape, generator=generator))


def rows_of_trl(
    model: PreTrainedModel, adapter: bool, rows: list[dict[str, Any]], folder: Path, settings: dict[str, Any]
) -> list[dict[str, float]]:
    from datasets import Dataset
    from trl import DPOConfig as TRLConfig
    from trl import DPOTrainer

    args = TRLConfig(output_dir=str(folder), gradient_checkpointing=False, disable_tqdm=True, **{**COMMON, **settings})
    trainer = DPOTrainer(
        model=model,
        ref_model=None if adapter else copy.deepcopy(model),
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=tiny_tokenizer(),
        peft_config=new_adapter() if adapter else None,
        callbacks=[SameStart()],
    )
    trainer.train()
    return [row for row in trainer.state.log_history if "loss" in row]


def rows_of_ours(
    model: PreTrainedModel, adapter: bool, rows: list[dict[str, Any]], folder: Path, settings: dict[str, Any]
) -> list[dict[str, float]]:
    result = train_dpo(
        DPOConfig(output_dir=str(folder), **{**COMMON, **settings}),
        model=model,
        tokenizer=tiny_tokenizer(),
        train_dataset=rows,
        peft_config=new_adapter() if adapter else None,
        callbacks=[SameStart()],
        console=Console(quiet=True),
    )
    return [row for row in result.metrics if "loss" in row]


def worst(ours: list[dict[str, float]], theirs: list[dict[str, float]], key: str, floor: float) -> float:
    """The largest difference of any step, relative to TRL's value, of which less than `floor` counts as `floor`."""
    assert [row["step"] for row in ours] == [row["step"] for row in theirs] == list(range(1, STEPS + 1))
    return max(abs(a[key] - b[key]) / max(abs(b[key]), floor) for a, b in zip(ours, theirs, strict=True))


def right_as_often(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> bool:
    """Whether as many pairs are right in every step but the first, where policy and reference are one function.

    There both rewards are nothing but rounding, which is zero where a CPU's products do not depend on their shape (the
    reference has other micro-batches than the policy), and on others either side of it.
    """
    assert all(abs(rows[0]["rewards/margins"]) < 1e-5 for rows in (ours, theirs))
    return all(a["rewards/accuracies"] == b["rewards/accuracies"] for a, b in zip(ours[1:], theirs[1:], strict=True))


FEW: list[tuple[str, bool, dict[str, Any]]] = [
    ("qwen2", True, {"gradient_accumulation_steps": 2, "lr_scheduler_type": "cosine"}),
]
EVERY: list[tuple[str, bool, dict[str, Any]]] = [
    ("llama", False, {}),
    ("qwen2", True, {"gradient_accumulation_steps": 4, "lr_scheduler_type": "cosine"}),
    ("llama", True, {"loss_type": ["sigmoid", "bco_pair", "sft"], "loss_weights": [0.8, 0.2, 1.0]}),
    ("gemma", False, {"loss_type": ["aot"], "per_device_train_batch_size": 4}),
    ("llama", True, {"loss_type": ["hinge"]}),
    ("qwen3", False, {"loss_type": ["ipo"], "gradient_accumulation_steps": 2}),
    ("llama", True, {"loss_type": ["exo_pair"], "label_smoothing": 0.1}),
    ("llama", False, {"loss_type": ["nca_pair"]}),
    ("qwen2", True, {"loss_type": ["robust"], "label_smoothing": 0.1}),
    ("llama", False, {"loss_type": ["bco_pair"]}),
    ("llama", True, {"loss_type": ["sppo_hard"], "max_grad_norm": 0.2}),
    ("llama", False, {"loss_type": ["aot_unpaired"], "gradient_accumulation_steps": 2}),
    ("llama", True, {"loss_type": ["apo_zero"]}),
    ("llama", False, {"loss_type": ["apo_down"]}),
    ("qwen3", True, {"loss_type": ["discopop"]}),
    ("llama", False, {"loss_type": ["sft"], "gradient_accumulation_steps": 2}),
    ("llama", True, {"loss_type": ["sigmoid_norm"]}),
    ("llama", False, {"ld_alpha": 0.4}),
    ("llama", True, {"use_weighting": True}),
    ("llama", False, {"f_divergence_type": "js_divergence"}),
    ("llama", True, {"f_divergence_type": "forward_kl"}),
    ("llama", False, {"f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": 0.5}),
    ("llama", True, {"max_length": 12, "truncation_mode": "keep_end", "beta": 0.3}),
]


@pytest.mark.parametrize(
    ("kind", "adapter", "settings"), [*FEW, *(pytest.param(*case, marks=pytest.mark.long) for case in EVERY)]
)
def test_every_step_is_trls(kind: str, adapter: bool, settings: dict[str, Any], tmp_path: Path) -> None:
    model, rows = tiny_model(kind), pairs(24)
    theirs = rows_of_trl(copy.deepcopy(model), adapter, copy.deepcopy(rows), tmp_path / "trl", settings)
    for execution in ("on", "off"):
        told = {"on_bad_row": "skip", "packed_execution": execution, **settings}
        ours = rows_of_ours(copy.deepcopy(model), adapter, rows, tmp_path / execution, told)
        assert worst(ours, theirs, "loss", 1e-3) < 1e-5, execution
        one_batch = settings.get("gradient_accumulation_steps", 1) == 1
        for key in (*METRICS, *(OF_TOKENS if one_batch else ())):
            assert worst(ours, theirs, key, 1e-1) < 1e-3, (execution, key)
        assert right_as_often(ours, theirs), execution
    assert theirs[0]["loss"] != theirs[-1]["loss"]


@pytest.mark.long
def test_the_comparison_can_fail(tmp_path: Path) -> None:
    """Negative control: another beta, or sides exchanged, does not pass."""
    model, rows = tiny_model(), pairs(12)
    theirs = rows_of_trl(copy.deepcopy(model), False, copy.deepcopy(rows), tmp_path / "trl", {})
    ours = rows_of_ours(copy.deepcopy(model), False, rows, tmp_path / "a", {"beta": 0.11})
    assert worst(ours, theirs, "loss", 1e-3) > 1e-4
    exchanged = [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]
    ours = rows_of_ours(copy.deepcopy(model), False, exchanged, tmp_path / "b", {})
    assert worst(ours, theirs, "rewards/margins", 1e-1) > 1e-2
    assert not right_as_often(ours, theirs)
