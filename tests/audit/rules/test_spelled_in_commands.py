"""Promise: a flag that differs in its dashes alone is refused where a parser tells them apart, wherever its command is."""

import json
from pathlib import Path

import pytest

from tests.audit.made_up import audited

ARGPARSE = """import argparse
p = argparse.ArgumentParser()
p.add_argument('--batch-size', type=int)
{}print(p.parse_args())
"""
TYPER = (
    "import typer\ndef main(batch_size: int = 8, warm: bool = False):\n    print(batch_size, warm)\ntyper.run(main)\n"
)
CLICK = (
    "import click\n@click.command()\n@click.option('--batch_size', default=8)\n@click.option('--warm/--no-warm')\n"
    "def main(batch_size, warm):\n    print(batch_size, warm)\nmain()\n"
)
CLASSES = """from dataclasses import dataclass
from transformers import HfArgumentParser
@dataclass
class Options:
    batch_size: int = 8
print(HfArgumentParser(Options).parse_args_into_dataclasses())
"""
SWITCH = "p.add_argument('--pin-memory', action=argparse.BooleanOptionalAction)\n"


@pytest.mark.parametrize(
    ("program", "flags", "says"),
    [
        (ARGPARSE.format(""), "--batch_size 8", "`--batch-size`"),
        (ARGPARSE.format(""), "--batch-size 8", ""),
        (ARGPARSE.format(""), "--batch 8", ""),
        (ARGPARSE.format("p.add_argument('--batch_size')\n"), "--batch_size 8", ""),
        (ARGPARSE.format(SWITCH), "--no-pin-memory", ""),
        (ARGPARSE.format(SWITCH), "--pin_memory", "`--pin-memory`"),
        (TYPER, "--batch_size 8", "`--batch-size`"),
        (TYPER, "--batch-size 8 --no-warm", ""),
        (CLICK, "--batch-size 8", "`--batch_size`"),
        (CLICK, "--batch_size 8 --no-warm", ""),
        (CLASSES, "--batch-size 8", ""),
        (CLASSES, "--batch_size 8", ""),
    ],
)
def test_dashes_and_underscores(tmp_path: Path, program: str, flags: str, says: str) -> None:
    files = {"train.py": program, "run.sh": f"python train.py {flags}\n"}
    found = audited(tmp_path, files, select=("CFG008",)).findings
    assert [says in one.message for one in found] == [True] * bool(says)


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("!python train.py --batch_size 8\n", True),
        ("import os\nif True:\n    !python train.py --batch_size 8\n", True),
        ("n = 8\n!python train.py --batch_size {n}\n", True),
        ("%%bash\ncd .\npython train.py --batch_size 8\n", True),
        ("!python train.py \\\n    --batch_size 8\n", True),
        ("!python train.py --batch-size 8\n", False),
        ("# python train.py --batch_size 8\n", False),
        ("!pip install x\nprint('python train.py --batch_size 8')\n", False),
    ],
)
def test_commands_in_cells(tmp_path: Path, cell: str, says: bool) -> None:
    notebook = {"cells": [{"cell_type": "code", "metadata": {}, "source": cell}], "nbformat": 4, "metadata": {}}
    files = {"train.py": ARGPARSE.format(""), "run.ipynb": json.dumps(notebook)}
    assert bool(audited(tmp_path, files, select=("CFG008",)).findings) == says


CONFIG = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\nuse_peft: {}\nlora_r: 8\n"


@pytest.mark.parametrize(
    ("text", "adapters", "says"),
    [
        ("The model is trained with full fine-tuning, no LoRA.", "true", True),
        ("All weights are trained (no adapters).", "true", True),
        ("The model is trained with full fine-tuning, no LoRA.", "false", False),
        ("Full fine-tuning is not needed here.", "true", False),
    ],
)
def test_full_training_that_is_told(tmp_path: Path, text: str, adapters: str, says: bool) -> None:
    files = {"sft.yaml": CONFIG.format(adapters), "README.md": f"# x\n\n{text}\n"}
    assert bool(audited(tmp_path, files, select=("CFG011",)).findings) == says


LOOP = """import torch
for x in loader:
    with torch.autocast('cuda'):
        loss = model(x)
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("text", "more", "says"),
    [
        ("For mixed precision `pip install apex`.", "", True),
        ("For mixed precision `pip install apex`.", "from apex import amp\n", False),
        ("For the demo `pip install apex`.", "", False),
    ],
)
def test_apex(tmp_path: Path, text: str, more: str, says: bool) -> None:
    files = {"train.py": more + LOOP, "README.md": f"# x\n\n{text}\n"}
    assert bool(audited(tmp_path, files, select=("CFG011",)).findings) == says
