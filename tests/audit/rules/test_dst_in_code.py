"""Promise: what goes wrong with several ranks is found in code, and right code in many shapes is not."""

from pathlib import Path

import pytest

from tests.audit.rules.scripts import said

LOOP = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
model = %s
for batch in loader:
    loss = model(**batch).loss
    %s
    optimizer.step()
    optimizer.zero_grad()
"""
START = """
import os
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import Accelerator
"""
FOUND = [
    ("DST050", LOOP % ("DDP(model)", "(loss / world_size).backward()")),
    ("DST050", LOOP % ("DDP(model)", "loss = loss / dist.get_world_size()\n    loss.backward()")),
    ("DST050", LOOP % ("DDP(model)", "loss /= world_size\n    loss.backward()")),
    ("DST050", "from accelerate import Accelerator\na = Accelerator()\n"
     + LOOP % ("model", "loss = loss / a.num_processes\n    a.backward(loss)")),
    ("DST051", START + "rank = dist.get_rank()\ndist.init_process_group('nccl')\n"),
    ("DST051", START + "def main():\n    n = dist.get_world_size()\n    a = Accelerator()\n"),
    ("DST051", START + "accumulation = 64 // int(os.environ.get('WORLD_SIZE', 1))\nmp.spawn(train, nprocs=8)\n"),
]  # fmt: skip
LEFT = [
    ("DST050", LOOP % ("DDP(model)", "loss.backward()")),
    ("DST050", LOOP % ("DDP(model)", "(loss / accumulation).backward()")),
    ("DST050", LOOP % ("DDP(model)", "loss.backward()\n    mean = loss / world_size")),
    ("DST050", LOOP % ("model", "(loss / world_size).backward()")),  # nothing averages here
    ("DST050", LOOP % ("DDP(model)", "(loss * world_size / tokens).backward()")),
    ("DST050", LOOP % ("DDP(model)", "shown = loss / world_size\n    loss.backward()")),
    ("DST051", START + "dist.init_process_group('nccl')\nrank = dist.get_rank()\n"),
    ("DST051", START + "def log():\n    return dist.get_rank()\ndef main():\n    dist.init_process_group('nccl')\n"),
    ("DST051", START + "rank = dist.get_rank() if dist.is_initialized() else 0\ndist.init_process_group('nccl')\n"),
    ("DST051", START + "from runs import init_ranks\ninit_ranks()\nrank = dist.get_rank()\na = Accelerator()\n"),
    ("DST051", START + "n = int(os.environ.get('WORLD_SIZE', 1))\n"),  # torchrun sets it
    ("DST051", START + "def work(r):\n    n = os.environ.get('WORLD_SIZE', 1)\nmp.spawn(work, nprocs=8)\n"),
]


@pytest.mark.parametrize(("code", "text"), FOUND)
def test_found(code: str, text: str, tmp_path: Path) -> None:
    assert len(said(code, tmp_path, text)) == 1


@pytest.mark.parametrize(("code", "text"), LEFT)
def test_left_alone(code: str, text: str, tmp_path: Path) -> None:
    assert not said(code, tmp_path, text)
