"""Promise: rows that are shared out twice, tasks that each launch processes, and accumulation that nobody enters are found
in the shapes in which people write them."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


def codes(folder: Path, files: dict[str, str], code: str) -> list[str]:
    return [one.message for one in audited(folder, files).findings if one.code == code]


BOTH = """import os
from transformers import Trainer, TrainingArguments
world = int(os.environ.get("WORLD_SIZE", 1))
{before}
args = TrainingArguments("out", per_device_train_batch_size={rows}, gradient_accumulation_steps={steps})
Trainer(model, args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("before", "rows", "steps", "wrong"),
    [
        ("", "cfg.batch_size // world", "max(1, cfg.accum // world)", True),
        ("", "int(a.batch_size / world)", "int(a.gradient_accumulation_steps / world)", True),
        ("batch_size //= world\\naccum_steps //= world", "batch_size", "accum_steps", True),
        ("", "cfg.batch_size // world", "cfg.accum", False),
        ("", "cfg.micro", "max(1, cfg.accum // world)", False),
        ("accum = total // micro", "cfg.batch_size // world", "accum // world", False),
        (
            "if big:\\n    batch_size = batch_size // world\\nelse:\\n    accum = accum // world",
            "batch_size",
            "accum",
            False,
        ),
        ("", "cfg.batch_size // world", "cfg.accum // world  # dynotune: ignore[DST052] of eight times", False),
    ],
)
def test_batch_and_accumulation_are_both_shared_out(
    tmp_path: Path, before: str, rows: str, steps: str, wrong: bool
) -> None:
    text = BOTH.format(before=before.replace("\\n", "\n"), rows=rows, steps=steps)
    assert any("divided by it already" in one for one in codes(tmp_path, {"train.py": text}, "DST052")) is wrong


BY_SHELL = """GPUS=4
BS=$((BATCH_SIZE / GPUS))
ACC={}
torchrun --nproc_per_node=$GPUS train.py --batch_size $BS --grad_acc $ACC
"""


@pytest.mark.parametrize(("steps", "wrong"), [("$((ACCUM / GPUS))", True), ("$ACCUM", False)])
def test_a_shell_shares_both_out(tmp_path: Path, steps: str, wrong: bool) -> None:
    files = {
        "run.sh": BY_SHELL.format(steps),
        "train.py": BOTH.format(before="", rows="a.batch_size", steps="a.grad_acc"),
    }
    assert any("divided by it already" in one for one in codes(tmp_path, files, "DST052")) is wrong


JOB = "#!/bin/bash\n#SBATCH --nodes={}\n#SBATCH {}\n#SBATCH --gres=gpu:4\n{} train.py\n"


@pytest.mark.parametrize(
    ("nodes", "tasks", "command", "wrong"),
    [
        (1, "--ntasks-per-node=4", "srun torchrun --nproc_per_node=4", True),
        (1, "--ntasks=4", "srun accelerate launch --num_processes 4", True),
        (1, "--ntasks-per-node=4", "srun torchrun --nproc_per_node=gpu", True),
        (2, "--ntasks=8", "srun torchrun --nnodes=2 --rdzv_backend=c10d --nproc_per_node=4", True),
        (2, "--ntasks=2", "srun torchrun --nnodes=2 --rdzv_backend=c10d --nproc_per_node=4", False),
        (1, "--ntasks-per-node=1", "srun torchrun --nproc_per_node=4", False),
        (1, "--ntasks-per-node=4", "srun --ntasks=1 torchrun --nproc_per_node=4", False),
        (1, "--ntasks-per-node=4", "torchrun --nproc_per_node=4", False),
        (1, "--ntasks-per-node=4", "srun python", False),
    ],
)
def test_tasks_that_are_launchers(tmp_path: Path, nodes: int, tasks: str, command: str, wrong: bool) -> None:
    files = {"job.sbatch": JOB.format(nodes, tasks, command), "train.py": BOTH.format(before="", rows=4, steps=1)}
    assert any("the same port" in one for one in codes(tmp_path, files, "DST005")) is wrong


TOLD = """from accelerate import Accelerator
accelerator = Accelerator(gradient_accumulation_steps=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
{set}
for step, batch in enumerate(loader):
    loss = model(**batch).loss
    accelerator.backward(loss)
    if accelerator.sync_gradients:
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
    {step}
"""
STEP = "optimizer.step(); optimizer.zero_grad()"
COUNTED = f"if (step + 1) % grad_accum == 0:\n        {STEP}"


@pytest.mark.parametrize(
    ("set_", "step", "several", "says"),
    [
        ("", STEP, "", "is entered"),
        ("accelerator.gradient_state._set_sync_gradients(True)", STEP, "", ""),
        ("", COUNTED, "", ""),
        ("", COUNTED, "accelerate launch --num_processes 2 train.py\n", "go over the network at each"),
    ],
)
def test_accumulation_that_nobody_enters(tmp_path: Path, set_: str, step: str, several: str, says: str) -> None:
    files = {"train.py": TOLD.format(set=set_, step=step), "run.sh": several}
    found = codes(tmp_path, files, "OPT054")
    assert len(found) == bool(says)
    assert all(says in one for one in found)


ADAPTED = """from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = get_peft_model(AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B"), LoraConfig())
args = TrainingArguments("o", gradient_checkpointing=True, gradient_checkpointing_kwargs={{"use_reentrant": {}}})
Trainer(model, args, train_dataset=data).train()
"""


@pytest.mark.parametrize("asked", [True, False])
def test_reentrant_under_adapters_is_said_once(tmp_path: Path, asked: bool) -> None:
    files = {"train.py": ADAPTED.format(asked), "requirements.txt": "transformers==4.51.3\n"}
    found = codes(tmp_path, files, "MEM002")
    assert [("is asked for" in one) for one in found] == [True] * asked


PREPARED = """from accelerate import Accelerator
from torch.utils.data import DataLoader
import torch
accelerator = Accelerator(gradient_accumulation_steps=4)
loader = DataLoader(rows, batch_size=4, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
{}
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
"""
FOUR = {"run.sh": "accelerate launch --num_processes 4 train.py\n"}


@pytest.mark.parametrize(
    ("prepare", "code", "wrong"),
    [
        ("model, loader = accelerator.prepare(model, loader)", "OPT054", True),
        ("model, optimizer = accelerator.prepare(model, optimizer)", "DST057", True),
        ("model, optimizer, loader = accelerator.prepare(model, optimizer, loader)", "OPT054", False),
        ("model, optimizer, loader = accelerator.prepare(model, optimizer, loader)", "DST057", False),
        ("model, optimizer, loader = accelerator.prepare(*everything)", "DST057", False),
        ("model, optimizer, loader = accelerator.prepare(*(model, optimizer, loader))", "OPT054", False),
    ],
)
def test_what_is_not_prepared(tmp_path: Path, prepare: str, code: str, wrong: bool) -> None:
    found = codes(tmp_path, {"train.py": PREPARED.format(prepare), **FOUR}, code)
    assert any("was not given to" in one for one in found) is wrong


LAYER = """from torch import nn


class Block(nn.Module):
    def forward(self, x, mask=None):
        if {}:
            mask = None
        return attend(x, mask)
"""


@pytest.mark.parametrize(
    ("test", "wrong"),
    [
        ("mask is not None and mask.all()", True),
        ("self.training and x.isnan().any()", True),
        ("fast and mask.all()", False),
    ],
)
def test_a_mask_that_is_asked_where_it_is_there(tmp_path: Path, test: str, wrong: bool) -> None:
    assert bool(codes(tmp_path, {"model.py": LAYER.format(test)}, "HST002")) is wrong


WORKED = """GLOBAL_BATCH=256
GPUS=8
NNODES=2
GA={}
torchrun {} --nproc_per_node=$GPUS train.py --per_device_train_batch_size 4 --gradient_accumulation_steps {}
"""
TRAINS = BOTH.format(before="", rows="a.rows", steps="a.gradient_accumulation_steps")
TWO = "--nnodes=$NNODES --rdzv_backend=c10d --rdzv_endpoint=$HEAD"


@pytest.mark.parametrize(
    ("steps", "nodes", "given", "says"),
    [
        ("$((GLOBAL_BATCH / 4))", "", "$GA", "makes one process come to the whole batch"),
        ("$((GLOBAL_BATCH / 4 / GPUS))", "", "$GA", ""),
        ("$((GLOBAL_BATCH / 4))", "", "8", ""),
        ("$((GLOBAL_BATCH / 4 / GPUS))", TWO, "$GA", "16 processes are started"),
        ("$((GLOBAL_BATCH / 4 / GPUS / NNODES))", TWO, "$GA", ""),
        ("$((GLOBAL_BATCH / (4 * GPUS * NNODES)))", TWO, "${GA}", ""),
    ],
)
def test_an_accumulation_by_the_flag_that_gets_it(
    tmp_path: Path, steps: str, nodes: str, given: str, says: str
) -> None:
    found = codes(tmp_path, {"run.sh": WORKED.format(steps, nodes, given), "train.py": TRAINS}, "DST052")
    assert len(found) == bool(says)
    assert all(says in one for one in found)


ZERO = '{{"zero_optimization": {{"stage": {}, "offload_optimizer": {{"device": "cpu"}}}}}}\n'


@pytest.mark.parametrize(
    ("stage", "size", "readme", "wrong"),
    [
        (3, "0.5B", "One node, 8x H100 80GB.\n", True),
        (2, "0.5B", "One node, 8x H100 80GB.\n", True),
        (2, "0.5B", "One node.\n", False),
        (2, "7B", "Two GPUs: 2x RTX 3090.\n", False),
        (3, "7B", "One RTX 4090.\n", False),
    ],
)
def test_offloaded_though_the_named_card_has_room(
    tmp_path: Path, stage: int, size: str, readme: str, wrong: bool
) -> None:
    sft = f"model_name_or_path: Qwen/Qwen2.5-{size}\ndataset_name: data.jsonl\ndeepspeed: ds.json\n"
    files = {"sft.yaml": sft, "ds.json": ZERO.format(stage), "README.md": readme}
    assert bool(codes(tmp_path, files, "MEM004")) is wrong
