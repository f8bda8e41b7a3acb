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
