"""Promise: 4-bit weights that are computed in float32 by name are found beside 16 bits elsewhere; epochs that a text names
are held against the steps, the rows of each and the rows that are told."""

import json
from pathlib import Path

import pytest

from tests.audit.made_up import audited

FOUR = """import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

kind = {kind}
four = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype={named})
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", quantization_config=four{loads})
SFTTrainer(model=model, args=SFTConfig("out"{given}), peft_config=LoraConfig(), train_dataset=rows).train()
"""
BY_CARD = "torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32"


@pytest.mark.parametrize(
    ("kind", "named", "loads", "given", "instead"),
    [
        (0, "torch.float32", "", ", bf16=True", "torch.bfloat16"),
        (0, '"float32"', "", ", fp16=True", "torch.float16"),
        (0, "torch.float32", ", torch_dtype=torch.bfloat16", "", "torch.bfloat16"),
        ("torch.float32", "kind", "", ", bf16=True", "torch.bfloat16"),
        (0, "torch.float32", "", "", ""),
        (0, "torch.bfloat16", "", ", bf16=True", ""),
        (BY_CARD, "kind", "", ", bf16=True", ""),
    ],
)
def test_four_bits_computed_in_float32(
    tmp_path: Path, kind: object, named: str, loads: str, given: str, instead: str
) -> None:
    text = FOUR.format(kind=kind, named=named, loads=loads, given=given)
    found = [one for one in audited(tmp_path, {"train.py": text}).findings if "bnb_4bit_compute_dtype" in one.message]
    assert [instead in one.remedy.text for one in found] == ([True] if instead else [])


AXOLOTL = (
    "base_model: Qwen/Qwen2.5-7B\nload_in_4bit: true\nadapter: qlora\nlora_r: 8\nbf16: {}\nbnb_config_kwargs:\n"
    "  bnb_4bit_compute_dtype: {}\ndatasets:\n  - path: a.jsonl\n    type: alpaca\nsequence_len: 512\noutput_dir: out\n"
)


@pytest.mark.parametrize(
    ("half", "named", "found"), [("true", "float32", True), ("true", "bfloat16", False), ("false", "float32", False)]
)
def test_the_same_in_axolotls_words(tmp_path: Path, half: str, named: str, found: bool) -> None:
    said = audited(tmp_path, {"a.yml": AXOLOTL.format(half, named)}).findings
    assert any("bnb_4bit_compute_dtype" in one.message for one in said) is found


RUN = """from transformers import Trainer, TrainingArguments

args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    {steps}
)
Trainer(model=model, args=args, train_dataset=rows).train()
"""
ALONE = "One A100. "


@pytest.mark.parametrize(
    ("steps", "readme", "found"),
    [
        ("max_steps=60,  # two full epochs", f"{ALONE}We have 8,000 tickets.", True),
        ("max_steps=60,", f"{ALONE}Trains for two epochs over 8,000 tickets.", True),
        ("max_steps=60,", "# Tickets\n\n3 epochs over 80k question/answer pairs.", True),
        ("max_steps=60,", "# Tickets\n\n3 epochs over 2k question/answer pairs.", False),  # perhaps on eight cards
        ("max_steps=1000,  # two epochs", f"{ALONE}We have 8,000 tickets.", False),
        ("max_steps=60,  # two epochs would take a day", f"{ALONE}We have 8,000 tickets.", False),
        ("max_steps=60,  # saves once in two epochs", f"{ALONE}We have 8,000 tickets.", False),
        (
            "max_steps=60,  # two epochs",
            f"{ALONE}We have 8,000 tickets and 400 test questions, 900 short answers.",
            False,
        ),
        ("max_steps=60,  # two epochs", f"{ALONE}We have tickets.", False),
        ("num_train_epochs=2,  # two epochs", f"{ALONE}We have 8,000 tickets.", False),
    ],
)
def test_epochs_that_a_text_names_beside_steps(tmp_path: Path, steps: str, readme: str, found: bool) -> None:
    files = {"train.py": RUN.format(steps=steps), "README.md": readme}
    said = [one.message for one in audited(tmp_path, files, select=("CFG011",)).findings if "epoch" in one.message]
    assert bool(said) is found


def test_the_text_of_a_notebook_speaks_of_its_only_job(tmp_path: Path) -> None:
    cells = [
        ("markdown", "Free Colab, Tesla T4. Two full epochs over 8,000 tickets."),
        ("code", RUN.format(steps="max_steps=60,")),
    ]
    made = [{"cell_type": kind, "metadata": {}, "source": text.splitlines(True), "outputs": []} for kind, text in cells]
    book = json.dumps({"cells": made, "nbformat": 4, "nbformat_minor": 5, "metadata": {}})
    (one,) = audited(tmp_path, {"tune.ipynb": book}, select=("CFG011",)).findings
    assert "960 of 8,000 rows" in one.message
