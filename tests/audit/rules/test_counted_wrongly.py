"""Promise: speeds, steps and batches that are counted wrongly are found wherever the parts of the sum stand."""

import json
from pathlib import Path

import pytest

from tests.audit.made_up import audited

LOOP = """import torch
from torch.utils.data import DataLoader
%s
for batch in loader:
    model(batch).loss.backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
"""
SAMPLED = (
    "from torch.utils.data import DistributedSampler\n"
    "loader = DataLoader(rows, sampler=DistributedSampler(rows), batch_size=8)\n%s\n"
    "scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total_steps)"
)
PREPARED = (
    "from accelerate import Accelerator\naccelerator = Accelerator()\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n%s\n"
    "scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total_steps)"
)
BEFORE = (
    "from accelerate import Accelerator\naccelerator = Accelerator()\n%s\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
    "scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total_steps)"
)
ONCE = "total_steps = len(loader) // accumulation * epochs"
TWICE = "total_steps = len(loader) // (accumulation * world_size) * epochs"
IN_TURN = "total_steps = epochs_of(3)\nsteps_per_epoch = max(1, len(loader) // accumulation // world_size)"
OF_ROWS = "total_steps = len(rows) // (8 * world_size) * epochs"
MEANS = "total_steps = 10\nmean_epoch_loss = loss_sum / len(loader) / world_size"

TRAIN = """import argparse, os
from accelerate import Accelerator
p = argparse.ArgumentParser()
p.add_argument('--gradient_accumulation_steps', type=int, default=1)
args = p.parse_args()
accelerator = Accelerator()
%s
for batch in loader:
    accelerator.backward(model(batch).loss)
    optimizer.step()
"""
AGAIN = "accumulation = max(1, args.gradient_accumulation_steps // accelerator.num_processes)"
TAKEN = "accumulation = args.gradient_accumulation_steps"
OF_ENVIRON = "accumulation = int(os.environ['GRAD_ACCUM']) // accelerator.num_processes"
SHELL = (
    "#!/bin/bash\nNUM_GPUS=$1\nACCUM=$((%s))\n"
    'accelerate launch --num_processes "$NUM_GPUS" train.py \\\n    --gradient_accumulation_steps "$ACCUM"\n'
)
INLINE = (
    "NUM_GPUS=$1\naccelerate launch --num_processes $NUM_GPUS train.py "
    "--gradient_accumulation_steps=$((128 / (4 * NUM_GPUS)))\n"
)
EXPORTED = "export GRAD_ACCUM=$((128 / NPROC / 4))\ntorchrun --nproc_per_node $NPROC train.py\n"

TIMED = """import time
import torch
def main(args):
    start = time.time()
    device = torch.device('cuda')
%s
    tokens = 0
    for step, batch in enumerate(accelerator.skip_first_batches(loader, skip) if skip else loader):
        model(batch).loss.backward()
        optimizer.step()
        tokens += batch.numel()
%s
        if step %% 50 == 0:
            print('tokens per second', tokens / (time.time() - start))
"""
LOADS = "\n".join(f"    part_{number} = load({number})" for number in range(60))

SPEED = """import time
for batch in loader:
    start = time.time()
    model(batch).loss.backward()
    optimizer.step()
    dt = time.time() - start
    %s
print(f'%s: {tokens / %s:.0f}')
"""

SFT = """from peft import LoraConfig
from trl import SFTConfig, SFTTrainer
args = SFTConfig(output_dir='o', max_length=512, per_device_train_batch_size=%d, gradient_accumulation_steps=32%s)
SFTTrainer(model='meta-llama/Llama-3.2-1B', args=args, train_dataset=d%s).train()
"""
ADAPTED = ", peft_config=LoraConfig(r=8)"
ON = {"README.md": "One H100 80GB."}
WORKERS = ", dataloader_num_workers=%d"

NOTE = (
    "| per_device_train_batch_size | speed |\n|---|---|\n| 1 | %s |\n| 4 | %s |\n\n"
    "Batch 1 is 2.4x faster, so I stay with 1."
)


def notebook(text: str) -> str:
    cells = [
        {"cell_type": "markdown", "source": text, "metadata": {}},
        {"cell_type": "code", "source": "from trl import SFTTrainer\n", "metadata": {}, "outputs": []},
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.mark.parametrize(
    ("code", "files", "found"),
    [
        ("OPT052", {"t.py": LOOP % (SAMPLED % TWICE)}, True),
        ("OPT052", {"t.py": LOOP % (SAMPLED % IN_TURN)}, True),
        ("OPT052", {"t.py": LOOP % (PREPARED % TWICE.replace("world_size", "accelerator.num_processes"))}, True),
        ("OPT052", {"t.py": LOOP % (SAMPLED % ONCE)}, False),
        ("OPT052", {"t.py": LOOP % (SAMPLED % OF_ROWS)}, False),
        ("OPT052", {"t.py": LOOP % (SAMPLED % MEANS)}, False),
        ("OPT052", {"t.py": LOOP % (BEFORE % TWICE.replace("world_size", "accelerator.num_processes"))}, False),
        ("DST052", {"train.py": TRAIN % AGAIN, "run.sh": SHELL % "128 / NUM_GPUS / 4"}, True),
        ("DST052", {"train.py": TRAIN % AGAIN, "run.sh": INLINE}, True),
        ("DST052", {"train.py": TRAIN % OF_ENVIRON, "run.sh": EXPORTED}, True),
        ("DST052", {"train.py": TRAIN % TAKEN, "run.sh": SHELL % "128 / NUM_GPUS / 4"}, False),
        ("DST052", {"train.py": TRAIN % AGAIN, "run.sh": SHELL % "128 / 4"}, False),
        ("MSR004", {"t.py": TIMED % (LOADS, "")}, True),
        ("MSR004", {"t.py": TIMED % ("", "")}, True),
        (
            "MSR004",
            {"t.py": TIMED % (LOADS, "        if step == 10:\n            start, tokens = time.time(), 0")},
            False,
        ),
        (
            "MSR004",
            {"t.py": TIMED % (LOADS, "        if step %% 50 == 0:\n            seen, start = 0, time.time()")},
            False,
        ),
        ("OPT004", {**ON, "t.py": SFT % (1, "", ADAPTED)}, True),
        ("OPT004", {**ON, "t.py": SFT % (8, "", ADAPTED)}, False),
        ("OPT004", {**ON, "t.py": SFT % (1, "", "")}, False),
        ("HST051", {"t.py": SFT % (1, WORKERS % 8, ""), "README.md": "A free Colab T4 (2 CPU cores, 15 GB)."}, True),
        ("HST051", {"t.py": SFT % (1, WORKERS % 16, ""), "run.sh": "# node: 8 vCPUs\npython t.py\n"}, True),
        ("HST051", {"t.py": SFT % (1, WORKERS % 2, ""), "README.md": "A free Colab T4 (2 CPU cores, 15 GB)."}, False),
        ("HST051", {"t.py": SFT % (1, WORKERS % 8, ""), "README.md": "Runs on 4 cores, better on 32 cores."}, False),
        ("MSR007", {"t.py": SPEED % ("best = min(best, dt)", "tokens/s", "best")}, True),
        ("MSR007", {"t.py": SPEED % ("if dt < least:\n        least = dt", "tok per second", "least")}, True),
        ("MSR007", {"t.py": SPEED % ("times.append(dt)", "tokens/s", "min(times)")}, True),
        ("MSR007", {"t.py": SPEED % ("best = min(best, dt)", "peak tokens/s", "best")}, False),
        ("MSR007", {"t.py": SPEED % ("took += dt", "tokens/s", "took")}, False),
        ("MSR007", {"t.py": SPEED % ("loss = min(loss, lowest)", "tokens/s", "took")}, False),
        ("MSR005", {"n.ipynb": notebook(NOTE % ("0.41 it/s", "0.17 it/s"))}, True),
        ("MSR005", {"n.ipynb": notebook(NOTE % ("900 tokens/s", "400 tokens/s"))}, False),
    ],
)
def test_it_is_found_and_its_neighbour_is_not(code: str, files: dict[str, str], found: bool, tmp_path: Path) -> None:
    result = audited(tmp_path, files, select=(code,))
    assert bool(result.findings) is found, [one.message for one in result.findings]
