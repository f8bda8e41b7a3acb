"""Promise: on a real model, its own chat template and real problems, every step has TRL's loss."""

import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

from dynotune import SFTConfig, train_sft


def problems(shared: Path, form: str, n: int) -> list[dict[str, Any]]:
    with gzip.open(shared / "data" / "math" / "gsm8k_train.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in islice(lines, n)]
    if form == "messages":
        return [
            {
                "messages": [
                    {"role": "user", "content": row["question"]},
                    {"role": "assistant", "content": row["answer"]},
                ]
            }
            for row in rows
        ]
    return [{"prompt": row["question"], "completion": row["answer"]} for row in rows]


@pytest.mark.parametrize("adapter", [False, True])
@pytest.mark.parametrize("form", ["messages", pytest.param("prompt/completion", marks=pytest.mark.long)])
def test_every_step_has_trls_loss(shared: Path, stories: Path, form: str, adapter: bool, tmp_path: Path) -> None:
    from trl import SFTConfig as TRLConfig
    from trl import SFTTrainer

    common: dict[str, Any] = {
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 4 if adapter else 1,
        "assistant_only_loss": form == "messages",
        "max_steps": 20,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "cosine",
        "weight_decay": 0.05,
        "max_length": 200,
        "logging_steps": 1,
        "save_strategy": "no",
        "train_sampling_strategy": "sequential",
        "use_cpu": True,
        "bf16": False,
    }
    rows = problems(shared, form, 90)
    tokenizer = AutoTokenizer.from_pretrained(stories)

    def model() -> Any:
        loaded = AutoModelForCausalLM.from_pretrained(stories)
        if not adapter:
            return loaded
        import torch

        torch.manual_seed(0)
        return get_peft_model(loaded, LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"))

    trainer = SFTTrainer(
        model=model(),
        args=TRLConfig(
            output_dir=str(tmp_path / "trl"),
            gradient_checkpointing=False,
            disable_tqdm=True,
            report_to="none",
            **common,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    trainer.train()
    theirs = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    result = train_sft(
        SFTConfig(output_dir=str(tmp_path / "ours"), on_bad_row="skip", **common),
        model=model(),
        tokenizer=tokenizer,
        train_dataset=rows,
        console=Console(quiet=True),
    )
    ours = [row["loss"] for row in result.metrics if "loss" in row]
    assert len(ours) == len(theirs) == 20
    assert max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True)) < 1e-5
    assert ours[-1] < ours[0]


@pytest.mark.long
def test_held_out_loss_falls_as_trls(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark of 200 steps, over 40: same curve, and the saved model generates in plain transformers."""
    import sys

    from benchmarks import gsm8k_parity

    monkeypatch.setattr(gsm8k_parity, "STEPS", 40)
    monkeypatch.setitem(gsm8k_parity.COMMON, "max_steps", 40)
    monkeypatch.setattr(sys, "argv", ["gsm8k_parity.py", "--shared", str(shared), "--out", str(tmp_path)])
    assert gsm8k_parity.main() == 0
    result = json.loads((tmp_path / "gsm8k_parity.json").read_text())
    held_out = list(result["dynotune"]["held_out"].values())
    assert held_out[-1] < held_out[1] < held_out[0]
    assert (tmp_path / "gsm8k_parity.svg").is_file()


@pytest.mark.parametrize("adapter", [False, True])
def test_what_is_saved_generates_elsewhere(shared: Path, stories: Path, adapter: bool, tmp_path: Path) -> None:
    result = train_sft(
        SFTConfig(
            model_name_or_path=str(stories),
            dataset_name=str(shared / "data" / "math" / "gsm8k_test.jsonl.gz"),
            columns={"prompt": "question", "completion": "answer"},
            output_dir=str(tmp_path / "run"),
            max_steps=3,
            per_device_train_batch_size=2,
            max_length=256,
            on_bad_row="skip",
            save_strategy="no",
            use_cpu=True,
            use_peft=adapter,
            **({"lora_target_modules": "all-linear"} if adapter else {}),
        ),
        console=Console(quiet=True),
    )
    if adapter:
        from peft import AutoPeftModelForCausalLM

        loaded = AutoPeftModelForCausalLM.from_pretrained(result.folder / "adapter")
    else:
        loaded = AutoModelForCausalLM.from_pretrained(result.folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(result.folder / ("adapter" if adapter else "model"))
    ids = tokenizer("Tom has 3 apples.", return_tensors="pt")
    out = loaded.generate(**ids, max_new_tokens=8, do_sample=False)
    assert out.shape[1] > ids["input_ids"].shape[1]
