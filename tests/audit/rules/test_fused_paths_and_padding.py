"""Promise: what keeps attention from its fused kernels is found wherever it is written, and means over padding are."""

from pathlib import Path

import pytest

from tests.audit.rules.scripts import said

_TRAINER = """
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments
from torch.nn.attention import SDPBackend, sdpa_kernel
config = AutoConfig.from_pretrained("Qwen/Qwen2.5-1.5B"{asked})
{line}
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B", config=config, torch_dtype="bfloat16")
Trainer(model, TrainingArguments("out", bf16=True), train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("asked", "line", "found"),
    [
        ("", 'config._attn_implementation = "eager"', True),
        (', attn_implementation="eager"', "", True),
        ("", 'config._attn_implementation = "sdpa"', False),
        ("", 'config._attn_implementation = "eager"\nconfig.output_attentions = True', False),
        (
            "",
            "torch.backends.cuda.enable_flash_sdp(False)\ntorch.backends.cuda.enable_mem_efficient_sdp(False)",
            True,
        ),
        ("", "torch.backends.cuda.enable_flash_sdp(False)", False),
        ("", "sdpa_kernel(SDPBackend.MATH).__enter__()", True),
        ("", "sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]).__enter__()", False),
        (
            "",
            "torch.backends.cuda.sdp_kernel(enable_flash=False, enable_math=True, enable_mem_efficient=False)",
            True,
        ),
    ],
)
def test_kernels_that_are_switched_off(tmp_path: Path, asked: str, line: str, found: bool) -> None:
    assert bool(said("ATT004", tmp_path, _TRAINER.format(asked=asked, line=line))) is found


_LAYER = """
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        self.attn = nn.MultiheadAttention(512, 8, batch_first=True)
    def forward(self, x):
        {line}
        return y
model = Block().cuda()
for x in loader:
    model(x.cuda()).mean().backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("y, _ = self.attn(x, x, x)", True),
        ("y = self.attn(x, x, x)[0]", True),
        ("y, _ = self.attn(x, x, x, need_weights=False)", False),
        ("y, self.seen = self.attn(x, x, x)", False),
    ],
)
def test_weights_that_nobody_takes(tmp_path: Path, line: str, found: bool) -> None:
    assert bool(said("ATT004", tmp_path, _LAYER.format(line=line))) is found


_MEANS = """
import torch.nn.functional as F
for ids, mask in loader:
    loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten(), reduction="none").view_as(ids)
    {line}
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("loss = (loss * mask).mean()", True),
        ("loss = torch.mean(loss * mask[:, 1:].float())", True),
        ("loss = (loss * mask).sum() / mask.sum()", False),
        ("loss = (loss * weight).mean()", False),
    ],
)
def test_means_over_padding(tmp_path: Path, line: str, found: bool) -> None:
    assert bool(said("MSK052", tmp_path, _MEANS.format(line=line))) is found


_COLLATE = """
from torch.nn.utils.rnn import pad_sequence
def collate(rows):
    ids = pad_sequence([torch.tensor(one) for one in rows], batch_first=True, padding_value={pad})
    return ids[:, :-1], ids[:, 1:]
"""
_TRAIN = """
from data import collate
loader = DataLoader(rows, 16, collate_fn=collate)
crit = nn.CrossEntropyLoss({given})
for x, y in loader:
    crit(model(x).flatten(0, 1), y.flatten()).backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("pad", "given", "found"), [("0", "", True), ("0", "ignore_index=0", False), ("-100", "", False)]
)
def test_pairs_that_are_padded(tmp_path: Path, pad: str, given: str, found: bool) -> None:
    files = {"data__py": _COLLATE.format(pad=pad)}
    assert bool(said("MSK052", tmp_path, _TRAIN.format(given=given), **files)) is found


_AROUND = """
import time, torch
from transformers import Trainer, TrainingArguments
trainer = Trainer(model, TrainingArguments("out", max_steps=100), train_dataset=rows)
{before}
start = time.time()
trainer.train()
print("{what}", {value} / (time.time() - start))
"""


@pytest.mark.parametrize(
    ("before", "what", "value", "found"),
    [
        ("", "samples/s:", "100 * 8", True),
        ("", "tokens per second", "n_tokens", True),
        ("", "share", "waiting_time", False),
        ("warmup_trainer.train()  # warm-up", "samples/s:", "100 * 8", False),
    ],
)
def test_a_clock_around_a_trainer(tmp_path: Path, before: str, what: str, value: str, found: bool) -> None:
    assert bool(said("MSR004", tmp_path, _AROUND.format(before=before, what=what, value=value))) is found
