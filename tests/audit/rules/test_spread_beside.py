"""Promise: a second model that every process spreads over all GPUs is found, wherever the program loads it."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

LOOP = """import os
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
{imports}
dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
{loads}
student = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").to(local)
ddp = torch.nn.parallel.DistributedDataParallel(student, device_ids=[local])
opt = torch.optim.AdamW(student.parameters(), lr=1e-5, fused=True)
for batch in loader:
    with torch.no_grad():
        target = teacher(**batch).logits
    loss = kl(ddp(**batch).logits, target)
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
TEACHER = 'teacher = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", dtype="bfloat16", device_map={})'
FOUR, ONE = "torchrun --nproc_per_node=4 train.py\n", "python train.py\n"
ELSEWHERE = "from transformers import AutoModelForCausalLM\n\n\ndef load():\n    {}\n    return teacher\n"


@pytest.mark.parametrize(
    ("loads", "run", "found"),
    [
        (TEACHER.format('"auto"'), FOUR, 1),
        (TEACHER.format('"balanced"'), "accelerate launch --num_processes 2 train.py\n", 1),
        (TEACHER.format('"auto"'), FOUR + FOUR.replace("train.py", "train.py --lr 1"), 1),
        (TEACHER.format('"auto"'), ONE, 0),
        (TEACHER.format('{"": local}'), FOUR, 0),
        (TEACHER.format("local"), FOUR, 0),
        (TEACHER.format("None") + ".to(local)", FOUR, 0),
        (TEACHER.format('"auto" if big else {"": local}'), FOUR, 0),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = str(local)\n' + TEACHER.format('"auto"'), FOUR, 0),
        ('tok = AutoTokenizer.from_pretrained("a/b", device_map="auto")', FOUR, 0),
    ],
)
def test_a_teacher(tmp_path: Path, loads: str, run: str, found: int) -> None:
    files = {"train.py": LOOP.format(imports="", loads=loads), "run.sh": run}
    assert len(audited(tmp_path / "a", files, select=("DST001",)).findings) == found


@pytest.mark.parametrize(("mapped", "found"), [('"auto"', ["models.py:5"]), ('{"": 0}', [])])
def test_in_another_file(tmp_path: Path, mapped: str, found: list[str]) -> None:
    files = {
        "train.py": LOOP.format(imports="from models import load", loads="teacher = load()"),
        "models.py": ELSEWHERE.format(TEACHER.format(mapped)),
        "run.sh": FOUR,
    }
    said = audited(tmp_path / "a", files, select=("DST001",)).findings
    assert [f"{one.place.file}:{one.place.line}" for one in said] == found
