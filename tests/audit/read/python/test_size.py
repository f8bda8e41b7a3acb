"""Promise: a training folder of 5,000 lines is read, and all its jobs and calls followed, in less than 5 seconds."""

import time
from pathlib import Path

import pytest

from dynotune.audit.facts.job import Trainer
from dynotune.audit.read.python import jobs_of, read_script
from dynotune.audit.read.python.modules import Modules
from dynotune.audit.schema import Schemas
from tests.audit.speed import slower

ROOT = Path("project")

CONFIG = """
import os
from dataclasses import dataclass, field
BASE = {{"learning_rate": 1e-4, "bf16": True, "seed": int(os.environ.get("SEED", "1"))}}
@dataclass
class Args{n}:
{fields}
def make(rate, batch=8, **more):
    if batch > 4:
        batch = batch // 2
    config = dict(BASE, learning_rate=rate)
    config.update(per_device_train_batch_size=batch)
    return config
"""
TRAIN = """
import argparse
import torch
from transformers import Trainer, TrainingArguments
from config_{n} import Args{n}, BASE, make
parser = argparse.ArgumentParser()
{flags}
def step(model, batch, optimizer):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    return loss.item()
class Net(torch.nn.Module):
    def forward(self, x):
        return x.float()
def main():
    args = parser.parse_args()
    settings = make(args.flag_0, batch=args.flag_1)
{chain}
    Trainer(model=None, args=TrainingArguments(output_dir=f"out-{{x_0}}", **settings))
    for epoch in range(args.flag_2):
        for batch in loader:
            step(Net(), batch, None)
main()
"""


def folder(scripts: int, lines: int) -> dict[str, str]:
    """Names that lead through other names, through files and through flags, as grown projects have them."""
    files = {}
    for n in range(scripts):
        fields = "\n".join(f"    field_{i}: float = field(default={i} * 1e-3)" for i in range(lines // 4))
        flags = "\n".join(f'parser.add_argument("--flag_{i}", type=int, default={i})' for i in range(lines // 4))
        chain = "\n".join(
            f"    x_{i} = x_{i - 1} + args.flag_{i} if args.flag_{i} else 0" for i in range(1, lines // 2)
        )
        files[f"config_{n}.py"] = CONFIG.format(n=n, fields=fields)
        files[f"train_{n}.py"] = TRAIN.format(n=n, flags=flags, chain="    x_0 = 1\n" + chain)
    return files


@pytest.mark.long
def test_a_training_folder_of_5000_lines_takes_less_than_5_seconds() -> None:
    files = folder(scripts=12, lines=400)
    assert sum(text.count("\n") for text in files.values()) >= 5_000
    schemas = Schemas.of()
    schemas.keys(Trainer.TRANSFORMERS)  # of an installed package, once a process
    start = time.process_time()
    modules = Modules()  # one for a project, as the audit has it
    scripts = {name: read_script(ROOT / name, text, ROOT, modules) for name, text in files.items()}
    jobs = [job for script in scripts.values() for job in jobs_of(script, scripts, schemas, {}, modules)]
    followed = sum(len(call.arguments) for script in scripts.values() for call in script.calls)
    spent = time.process_time() - start
    assert len(jobs) == 12
    assert jobs[0].get("per_device_train_batch_size") == 1
    assert followed > 1_000
    assert spent < 5 * slower()
