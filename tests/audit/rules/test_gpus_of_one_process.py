"""Promise: a division by GPUs over which one process spreads one model is found, and what to start instead fits."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

SPREAD = """import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

n = torch.cuda.device_count()
args = TrainingArguments(output_dir="out", per_device_train_batch_size=4, gradient_accumulation_steps={steps}, bf16=True)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-3B"{mapped})
Trainer(model=model, args=args, train_dataset=data).train()
"""
AUTO = ', device_map="auto"'


@pytest.mark.parametrize(
    ("steps", "mapped", "run", "right"),
    [
        ("64 // 4 // n", AUTO, "python train.py", False),
        ("64 // (4 * torch.cuda.device_count())", AUTO, "python train.py", False),
        ("64 // 4", AUTO, "python train.py", True),
        ("64 // 4 // n", "", "python train.py", True),  # the trainer's DataParallel takes rows for each
        ("64 // 4 // n", ', device_map={"": 0}', "python train.py", True),
        ("64 // 4 // n", AUTO, "torchrun --nproc_per_node 4 train.py", True),  # DST001's
    ],
)
def test_divided_by_gpus_of_one_model(tmp_path: Path, steps: str, mapped: str, run: str, right: bool) -> None:
    text = SPREAD.format(steps=steps, mapped=mapped)
    said = audited(tmp_path, {"train.py": text, "run.sh": run + "\n"}, select=("DST052",)).findings
    assert any("spreads one model" in one.message for one in said) is not right
    silenced = {"train.py": "# dynotune: ignore-file[DST052] known\n" + text, "run.sh": run + "\n"}
    assert not audited(tmp_path / "silenced", silenced, select=("DST052",)).findings


READS = """import os
{more}
from transformers import Trainer, TrainingArguments

rank = int(os.environ["{variable}"])
{group}
Trainer(model="gpt2", args=TrainingArguments(output_dir="out"), train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("variable", "group", "says"),
    [
        ("RANK", "", 'get("RANK", 0)'),
        ("LOCAL_RANK", "", 'get("LOCAL_RANK", 0)'),
        ("WORLD_SIZE", "", 'get("WORLD_SIZE", 1)'),
        ("RANK", 'dist.init_process_group("nccl")', "torchrun"),
    ],
)
def test_what_is_read_of_no_launcher(tmp_path: Path, variable: str, group: str, says: str) -> None:
    more = "import torch.distributed as dist" if group else ""
    files = {"train.py": READS.format(variable=variable, group=group, more=more), "run.sh": "python train.py\n"}
    (said,) = audited(tmp_path, files, select=("DST051",)).findings
    assert says in said.remedy.text
