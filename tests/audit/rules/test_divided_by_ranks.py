"""Promise: a loss that is divided by ranks and something else is found, and one that is multiplied by them is not."""

from pathlib import Path

import pytest

from tests.audit.rules.scripts import said

LOOP = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

world, accum = dist.get_world_size(), 4
per_rank = 256 // (8 * world)
model = DDP(model)
for step, batch in enumerate(loader):
    loss = model(**batch).loss
    {}
    if (step + 1) % accum == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    "line",
    [
        "(loss / (accum * world)).backward()",
        "(loss / (world * accum)).backward()",
        "(loss / accum / world).backward()",
        "(loss / world / accum).backward()",
        "loss = loss / (accum * world); loss.backward()",
        "(loss / accum / dist.get_world_size()).backward()",
    ],
)
def test_a_divisor_with_ranks_in_it_is_said(tmp_path: Path, line: str) -> None:
    (finding,) = said("DST050", tmp_path, LOOP.format(line))
    assert "too small" in finding.message
    assert not finding.deliberate  # another product of ranks says nothing of the loss


@pytest.mark.parametrize(
    "line",
    [
        "(loss / accum * world).backward()",
        "(loss / accum).backward()",
        "loss = loss / accum * world; loss.backward()",
        "(loss / (accum * per_rank)).backward()",
    ],
)
def test_a_loss_that_is_multiplied_by_ranks_is_not(tmp_path: Path, line: str) -> None:
    assert not said("DST050", tmp_path, LOOP.format(line))


NAMED = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

n_ranks = int(os.environ["WORLD_SIZE"])
accum, rows = 4, len(loader)
model = DDP(model)


def step(batch):
    loss = model(**batch).loss
    {}


for index, batch in enumerate(loader):
    step(batch)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("scaled = loss / accum / n_ranks; scaled.backward()", True),
        ("loss *= 1.0 / n_ranks; loss.backward()", True),
        ("share = accum * n_ranks; (loss / share).backward()", True),
        ("scale = 1.0 / (accum * n_ranks); (loss * scale).backward()", True),
        ("scaled = loss / accum; scaled.backward()", False),
        ("scaled = loss * n_ranks / (accum * n_ranks); scaled.backward()", False),
        ("shown = loss / n_ranks; loss.backward()", False),
        ("share = rows // n_ranks; (loss / share).backward()", False),
        ("loss = loss * n_ranks / tokens; loss.backward()", False),
    ],
)
def test_a_divisor_is_followed_through_names(tmp_path: Path, lines: str, found: bool) -> None:
    assert bool(said("DST050", tmp_path, NAMED.format(lines))) is found
