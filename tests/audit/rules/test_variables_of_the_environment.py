"""Promise: what every command of a script puts into its environment is what the script reads there; what commands disagree
on, or a launcher gives each process, is not known."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

LOOP = """import os
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
E = os.environ
flag = lambda name: os.environ.get(name, "1") == "1"
def number(name, default="4"):
    return int(os.getenv(name, default))
loader = DataLoader(rows, batch_size=8, {given})
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
for batch in loader:
    batch = batch.to("cuda", non_blocking=True)
    loss = model(**batch).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
ENV = "PIN=0\n"


def codes(tmp_path: Path, files: dict[str, str]) -> set[str]:
    return {one.code for one in audited(tmp_path, files).findings}


@pytest.mark.parametrize(
    "given", ['pin_memory=flag("PIN")', 'pin_memory=E["PIN"] == "1"', 'pin_memory=number("PIN") > 0']
)
@pytest.mark.parametrize(
    ("files", "is_off"),
    [
        ({"run.sh": "export PIN=0\npython train.py\n"}, True),
        ({"run.sh": "PIN=0 python train.py\n"}, True),
        ({"run.sh": "set -a; source train.env; set +a\npython train.py\n", "train.env": ENV}, True),
        ({"run.sh": "set -o allexport\n. ./train.env\npython train.py\n", "train.env": ENV}, True),
        (
            {
                "compose.yaml": "services:\n  a:\n    env_file: train.env\n    command: python train.py\n",
                "train.env": ENV,
            },
            True,
        ),
        ({"compose.yaml": "services:\n  a:\n    environment:\n      PIN: 0\n    command: python train.py\n"}, True),
        ({"run.sh": "export PIN=1\npython train.py\n"}, False),
        ({"run.sh": "PIN=0\npython train.py\n"}, False),
        ({"run.sh": "source train.env\npython train.py\n", "train.env": ENV}, False),
        ({"run.sh": "PIN=0 python train.py\n", "other.sh": "PIN=1 python train.py\n"}, True),  # of one of them
    ],
)
def test_what_a_command_sets(tmp_path: Path, given: str, files: dict[str, str], is_off: bool) -> None:
    assert ("HST053" in codes(tmp_path, {"train.py": LOOP.format(given=given), **files})) is is_off


@pytest.mark.parametrize(("variable", "is_spread"), [("DEVICE_MAP: auto", True), ("OTHER: auto", False)])
def test_a_device_map_of_a_service(tmp_path: Path, variable: str, is_spread: bool) -> None:
    text = (
        "import os\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", device_map=os.environ.get("DEVICE_MAP"))\n'
        'Trainer(model, TrainingArguments(output_dir="out"), train_dataset=rows).train()\n'
    )
    compose = f"services:\n  a:\n    environment:\n      {variable}\n    command: torchrun --nproc_per_node 4 sft.py\n"
    assert ("DST001" in codes(tmp_path, {"sft.py": text, "compose.yaml": compose})) is is_spread
