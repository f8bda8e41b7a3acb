"""Promise: waits for each weight, for all ranks and for a logger are found, and old ways of joining conversations."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited
from tests.audit.rules.scripts import said

_LOOP = """
import torch
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter
tb = SummaryWriter()
def mean(t):
    t = t.detach().clone(); {reduce}
    return t.item()
model.cuda()
opt = torch.optim.AdamW(model.parameters(), fused=True)
for step, (x, y) in enumerate(loader):
    loss = crit(model(x.cuda()), y.cuda())
    loss.backward()
    {line}
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("line", "code", "found"),
    [
        ("for p in model.parameters():\n        if p.grad is not None: total += p.grad.norm().item()", "HST001", True),
        ("for p in model.parameters():\n        if step % 50 == 0: total += p.grad.norm().item()", "HST001", False),
        ("shown = mean(loss)", "HST001", True),
        ("shown = mean(loss) if step % 50 == 0 else None", "HST001", False),
        ('tb.add_scalar("loss", loss, step)', "HST001", True),
        ('if step % 50 == 0: tb.add_scalar("loss", loss, step)', "HST001", False),
        ("dist.barrier()", "HST003", True),
        ("if step % 500 == 0: dist.barrier()", "HST003", False),
    ],
)
def test_waits_at_each_step(tmp_path: Path, line: str, code: str, found: bool) -> None:
    assert bool(said(code, tmp_path, _LOOP.format(line=line, reduce="dist.all_reduce(t)"))) is found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("devices=4, log_every_n_steps=1", True),
        ("devices=4, log_every_n_steps=50", False),
        ("log_every_n_steps=1, logger=False", False),
        ("log_every_n_steps=1, max_steps=20", False),
        ('log_every_n_steps=1, accelerator="cpu"', False),
    ],
)
def test_a_logger_at_each_step(tmp_path: Path, given: str, found: bool) -> None:
    text = f"import pytorch_lightning as pl\npl.Trainer({given}).fit(model, loader)\n"
    assert bool(audited(tmp_path, {"train.py": text}, select=("HST001",)).findings) is found


_CONSTANT = """
from trl import SFTConfig, SFTTrainer
from trl.trainer import ConstantLengthDataset
rows = ConstantLengthDataset(tok, raw, formatting_func=lambda row: f"{words}", seq_length=1024)
SFTTrainer("Qwen/Qwen2.5-0.5B", args=SFTConfig("out", bf16=True), train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("words", "found"), [("Question: {row['q']}\\nAnswer: {row['a']}", True), ("{row['t']}", False)]
)
def test_rows_of_a_constant_length(tmp_path: Path, words: str, found: bool) -> None:
    files = {"requirements__txt": "trl==0.12.0\n"}
    assert bool(said("PAD001", tmp_path, _CONSTANT.format(words=words), **files)) is found


_UNSLOTH = """
from unsloth import FastLanguageModel
from trl import SFTTrainer
from transformers import TrainingArguments
model, tok = FastLanguageModel.from_pretrained("unsloth/Qwen2.5-7B", max_seq_length=4096)
SFTTrainer(model=model, tokenizer=tok, train_dataset=rows, packing={packing}, args=TrainingArguments("out")).train()
"""


@pytest.mark.parametrize(
    ("version", "packing", "found"), [("0.15.2", True, True), ("0.15.2", False, False), ("0.24.0", True, False)]
)
def test_packing_under_unsloth(tmp_path: Path, version: str, packing: bool, found: bool) -> None:
    files = {"requirements__txt": f"trl=={version}\n"}
    assert bool(said("PAD001", tmp_path, _UNSLOTH.format(packing=packing), **files)) is found
