"""What ranks do in tests. Imported once by the server that they are forked from."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from safetensors.torch import save_file
from transformers import TrainerCallback

from dynotune import SFTConfig, train_sft
from dynotune.objectives.sft import SFTObjective
from dynotune.parallel.group import RankGroup
from tests.tiny import chats, tiny_model, tiny_tokenizer

ROWS = chats(13)
HELD_OUT = chats(7, seed=5)
LORA = {"use_peft": True, "lora_r": 4, "lora_dropout": 0.0, "lora_target_modules": ["q_proj", "v_proj", "down_proj"]}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "full, packed": {},
    "full, plain": {"packed_execution": "off"},
    "LoRA, packed": LORA,
    "LoRA, plain": {**LORA, "packed_execution": "off"},
    "several micro-batches": {"micro_batch_tokens": 128, "learning_rate": 1e-2, "optim": "adamw_torch"},
}


class KeepGradients(TrainerCallback):
    """The gradients of the first two steps, as the optimizer gets them."""

    def __init__(self) -> None:
        self.kept: dict[str, torch.Tensor] = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step < 2:
            for name, p in more["model"].named_parameters():
                if p.grad is not None:
                    self.kept[f"{state.global_step}/{name}"] = p.grad.detach().clone()


def settings(folder: Path, **more: Any) -> SFTConfig:
    given = {
        "output_dir": str(folder),
        "use_cpu": True,
        "global_batch_size": 3,
        "num_train_epochs": 1,
        "logging_steps": 1,
        "save_strategy": "no",
        "eval_strategy": "steps",
        "eval_steps": 3,
        "optim": "sgd",
        "learning_rate": 0.5,
        "max_grad_norm": 0.0,
        **more,
    }
    return SFTConfig(**given)


def train(folder: Path, callbacks: Sequence[Any] = (), rows: Any = None, **more: Any) -> Any:
    return train_sft(
        settings(folder, **more),
        model=tiny_model(),
        tokenizer=tiny_tokenizer(),
        train_dataset=ROWS if rows is None else rows,
        eval_dataset=HELD_OUT,
        callbacks=callbacks,
        console=Console(quiet=True),
    )


def variants(folder: Path, names: Sequence[str]) -> None:
    """One run of each, with its gradients and weights beside it."""
    for name in names:
        torch.manual_seed(0)
        keep = KeepGradients()
        result = train(folder / name, [keep], **VARIANTS[name])
        if os.environ.get("RANK", "0") == "0":
            save_file(keep.kept, folder / name / "gradients.safetensors")
            weights = {key: p.detach().contiguous() for key, p in result.model.named_parameters() if p.requires_grad}
            save_file(weights, folder / name / "weights.safetensors")


def without_a_sum(folder: Path) -> None:
    RankGroup.sum_gradients = lambda self, parameters: None  # type: ignore[method-assign]
    variants(folder, ["full, packed"])


def over_its_own_tokens(folder: Path) -> None:
    """Each rank divides by the label tokens that it has itself: a mean of means."""

    def denominator(self: Any, step: Any) -> int:
        mine = sum(len(batch.rows) for batch in step.micro_batches)
        return max(1, step.label_tokens * mine // len(step.rows))

    SFTObjective.denominator = denominator  # type: ignore[method-assign]
    variants(folder, ["full, packed"])
