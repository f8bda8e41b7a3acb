"""Promise: what a script makes of the number of ranks is followed through its names, and said only where it is wrong."""

from pathlib import Path

import pytest

from tests.audit.rules.scripts import in_loop, said

HEAD = """
import os
import torch
world_size = int(os.environ["WORLD_SIZE"])
total_batch, micro_batch = 256, 4
"""


@pytest.mark.parametrize(
    "line",
    [
        "accum = total_batch // micro_batch",
        "accum = max(1, total_batch // micro_batch)",
        "accum_steps = total_batch // (micro_batch // world_size)",
        "per_rank = total_batch // world_size\naccum = per_rank // micro_batch // world_size",
        "args = dict(gradient_accumulation_steps=cfg.global_batch_size // cfg.micro_batch_size)",
        "cfg = {'gradient_accumulation_steps': 256 // micro_batch}",
        "trainer(per_device_train_batch_size=args.per_device_batch // world_size)",
    ],
)
def test_a_total_batch_is_divided_by_the_ranks_once(tmp_path: Path, line: str) -> None:
    assert said("DST052", tmp_path, HEAD + line + "\n")


@pytest.mark.parametrize(
    "line",
    [
        "accum = total_batch // (micro_batch * world_size)",
        "accum = total_batch // micro_batch // world_size",
        "rows = micro_batch * world_size\naccum = -(-total_batch // rows)",
        "accum = total_batch // micro_batch\nif ddp:\n    accum = accum // world_size",
        "accum = total_batch // micro_batch\naccum //= world_size",
        "accum = total_steps // micro_steps",
        "accum = batch_size // groups",
        "accum = total_batch // rows_of(micro_batch)",
        "trainer(per_device_train_batch_size=args.batch_size // world_size)",
    ],
)
def test_a_batch_that_is_right_or_cannot_be_told(tmp_path: Path, line: str) -> None:
    assert not said("DST052", tmp_path, HEAD + line + "\n")


def test_one_process_needs_no_division(tmp_path: Path) -> None:
    """A control: the same line where nothing speaks of ranks, and where a command starts several."""
    text = "import torch\ntotal_batch, micro_batch = 256, 4\naccum = total_batch // micro_batch\n"
    assert not said("DST052", tmp_path / "one", text)
    loop = in_loop().replace("import gc", text + "import gc").replace("import torch\nt", "t")
    assert said("DST052", tmp_path / "four", loop, run__sh="torchrun --nproc_per_node 4 train.py\n")
    assert not said("DST052", tmp_path / "alone", loop, run__sh="python train.py\n")


def test_ranks_asked_for_when_the_file_is_loaded(tmp_path: Path) -> None:
    text = "import torch.distributed as dist\n{}\n\n\ndef main():\n    dist.init_process_group('nccl')\n"
    guarded = "n = dist.get_world_size() if dist.is_initialized() else 1"
    assert said("DST051", tmp_path / "a", text.format(guarded))
    assert said("DST051", tmp_path / "b", text.format("n = dist.get_world_size()"))
    assert not said("DST051", tmp_path / "c", text.format("dist.init_process_group()\n" + guarded))
    assert not said("DST051", tmp_path / "d", text.format("def n():\n    return dist.get_world_size()"))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (("", ""), True),
        (("sampler = ", "# sampler.set_epoch\nsampler = "), False),
        (("(rows)", "(rows, shuffle=False)"), False),
        (("for epoch in range(3):", "if True:"), False),
    ],
)
def test_a_sampler_is_told_the_epoch(tmp_path: Path, change: tuple[str, str], found: bool) -> None:
    text = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
sampler = DistributedSampler(rows)
loader = DataLoader(rows, sampler=sampler)
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
"""
    assert bool(said("DST054", tmp_path, text.replace(*change))) is found


def test_gradients_are_held_back_or_there_is_one_micro_batch(tmp_path: Path) -> None:
    text = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
model = DDP(model.cuda())
for step, batch in enumerate(loader):
    loss = model(**batch).loss / accum
    loss.backward()
    if (step + 1) % accum == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
    assert said("DST053", tmp_path / "a", text)
    assert not said(
        "DST053", tmp_path / "b", text.replace("    loss.b", "    model.require_backward_grad_sync = last\n    loss.b")
    )
    assert not said("DST053", tmp_path / "c", text.replace("if (step + 1) % accum == 0", "if True"))


def test_accumulation_of_accelerate(tmp_path: Path) -> None:
    text = """
from accelerate import Accelerator
accelerator = Accelerator(gradient_accumulation_steps={})
for batch in loader:
    loss = model(**batch).loss
    {}
    accelerator.backward(loss)
    optimizer.step()
"""
    assert said("OPT054", tmp_path / "a", text.format(4, ""))
    assert not said("OPT054", tmp_path / "b", text.format(1, ""))
    assert not said("OPT054", tmp_path / "c", text.format(4, "accelerator.accumulate(model)"))
    (twice,) = said(
        "OPT054", tmp_path / "d", text.format("ACCUM", "loss = loss / ACCUM; accelerator.accumulate(model)")
    )
    assert "once more" in twice.message
