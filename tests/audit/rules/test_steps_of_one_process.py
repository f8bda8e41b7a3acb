"""Promise: a number of steps that divides the rows by one process's batch alone is found where the run accumulates or has
several processes; one that divides by these as well, or counts batches of a share, is right."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAINER = """from datasets import load_from_disk
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
MICRO, ACCUM, EPOCHS, GPUS = 4, 8, 2, 4
micro = 4
rows = load_from_disk("rows")
{before}
args = TrainingArguments(output_dir="out", per_device_train_batch_size=micro, gradient_accumulation_steps={accum},
                         {steps})
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
Trainer(model, args, train_dataset=rows).train()
"""


def says(tmp_path: Path, files: dict[str, str], part: str = "alone") -> bool:
    return any(one.code == "OPT052" and part in one.message for one in audited(tmp_path, files).findings)


@pytest.mark.parametrize(
    ("before", "steps", "accum", "gpus", "is_wrong"),
    [
        ("steps = EPOCHS * len(rows) // MICRO", "max_steps=steps", 8, 1, True),
        ("steps = EPOCHS * len(rows) // MICRO", "max_steps=steps", 1, 4, True),
        ("steps = EPOCHS * (len(rows) // MICRO)", "warmup_steps=int(0.1 * steps)", 8, 1, True),
        ("per_epoch = rows.num_rows // micro", "num_train_epochs=2, warmup_steps=per_epoch // 10", 8, 1, True),
        ("", "max_steps=-(-len(rows) // micro) * EPOCHS", 8, 1, True),
        ("steps = EPOCHS * len(rows) // MICRO", "max_steps=steps", 1, 1, False),
        ("steps = EPOCHS * len(rows) // (MICRO * ACCUM)", "max_steps=steps", 8, 1, False),
        ("steps = EPOCHS * len(rows) // MICRO // ACCUM // GPUS", "max_steps=steps", 8, 4, False),
        ("global_batch = 32\nsteps = EPOCHS * len(rows) // global_batch", "max_steps=steps", 8, 1, False),
        ("batch = MICRO * ACCUM\nsteps = EPOCHS * len(rows) // batch", "max_steps=steps", 8, 1, False),
        ("folds = len(rows) // 10", "max_steps=1000", 8, 4, False),
    ],
)
def test_steps_of_a_trainer(tmp_path: Path, before: str, steps: str, accum: int, gpus: int, is_wrong: bool) -> None:
    text = TRAINER.format(before=before, steps=steps, accum=accum)
    run = f"torchrun --nproc_per_node={gpus} train.py\n" if gpus > 1 else "python train.py\n"
    assert says(tmp_path, {"train.py": text, "run.sh": run}) is is_wrong


LOOP = """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import get_linear_schedule_with_warmup
dist.init_process_group("nccl")
world = dist.get_world_size()
loader = DataLoader(rows, BS, {sampler})
net = DDP(model)
opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
steps = {steps}
sched = get_linear_schedule_with_warmup(opt, int(0.1 * steps), steps)
for epoch in range(EPOCHS):
    for i, batch in enumerate(loader):
        loss = net(**batch).loss
        loss.backward()
        opt.step()
        sched.step()
        opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("sampler", "steps", "is_wrong"),
    [
        ("sampler=DistributedSampler(rows)", "EPOCHS * (len(rows) // BS)", True),
        ("sampler=DistributedSampler(rows)", "EPOCHS * len(rows) // BS // world", False),
        ("sampler=DistributedSampler(rows)", "EPOCHS * len(loader)", False),
        ("shuffle=True", "EPOCHS * (len(rows) // BS)", False),
    ],
)
def test_steps_of_a_loop(tmp_path: Path, sampler: str, steps: str, is_wrong: bool) -> None:
    assert says(tmp_path, {"train.py": LOOP.format(sampler=sampler, steps=steps)}) is is_wrong


ACCELERATED = """from accelerate import Accelerator
from transformers import get_scheduler
accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
total = 3 * len(loader){times}
schedule = {made}
for batch in loader:
    accelerator.backward(model(**batch).loss)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
"""
MADE = 'get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps=total)'


@pytest.mark.parametrize(
    ("times", "made", "is_wrong"),
    [
        ("", f"accelerator.prepare({MADE})", True),
        (" * accelerator.num_processes", f"accelerator.prepare({MADE})", False),
        ("", MADE, False),
    ],
)
def test_prepared_where_it_is_made(tmp_path: Path, times: str, made: str, is_wrong: bool) -> None:
    files = {"train.py": ACCELERATED.format(times=times, made=made)}
    files |= {"acc.yaml": "distributed_type: MULTI_GPU\nnum_processes: 4\ncompute_environment: LOCAL_MACHINE\n"}
    files |= {"Makefile": "train:\n\taccelerate launch --config_file acc.yaml train.py\n"}
    assert says(tmp_path, files, "once for each process") is is_wrong
