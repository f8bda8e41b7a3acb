"""Promise: too small passes for a card, and checkpointing with memory to spare, are found in loops of one's own,
by the sizes of models of one's own."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

MODEL = """from torch import nn
class GPT(nn.Module):
    def __init__(self, vocab_size, n_layer=12, n_embd=768, block_size=1024):
        super().__init__()
"""
LOOP = """import torch
from model import GPT
# {card}
batch_size, block_size, accumulation = {rows}, {length}, {times}
torch.manual_seed(1)
model = GPT({sizes}).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
def get_batch():
    ix = torch.randint(len(data) - block_size, (batch_size,))
    return torch.stack([data[i : i + block_size + 1] for i in ix]).cuda()
for it in range(1000):
    for micro in range(accumulation):
        loss = model(get_batch()) / accumulation
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
PLAIN = {"card": "one H100 80GB", "rows": 1, "length": 256, "times": 64, "sizes": "50304, n_layer=12, n_embd=768"}


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"sizes": "50304"},
        {"sizes": "vocab_size=50304, **dict(n_layer=24, n_embd=1024)"},
        {"card": "one H100", "length": 1024, "sizes": "50304"},
    ],
)
def test_windows_drawn_one_by_one(tmp_path: Path, other: dict[str, object]) -> None:
    files = {"train.py": LOOP.format(**PLAIN | other), "model.py": MODEL}
    (found,) = audited(tmp_path, files, select=("OPT004",)).findings
    assert "times a step" in found.message


@pytest.mark.parametrize(
    "other", [{"times": 1}, {"rows": 64}, {"sizes": "load_sizes()"}, {"sizes": "50304, n_layer=32, n_embd=4096"}]
)
def test_windows_that_fill_the_card(tmp_path: Path, other: dict[str, object]) -> None:
    files = {"train.py": LOOP.format(**PLAIN | other), "model.py": MODEL}
    assert not audited(tmp_path, files, select=("OPT004",)).findings


SFT = """from peft import LoraConfig
from trl import SFTConfig, SFTTrainer
SFTTrainer(model='Qwen/Qwen2.5-7B', args=SFTConfig('out', per_device_train_batch_size=1, gradient_accumulation_steps=32,
           max_length=2048, gradient_checkpointing=False), train_dataset=rows, peft_config=LoraConfig(r=8)).train()
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("On an H100. Rows have 270 tokens on average.", True),
        ("On an H100. Rows have 1,200 tokens on average.", False),
        ("Rows have 270 tokens on average.", False),
        ("On an H100 or an A100. Rows have 270 tokens on average.", False),
        ("On an H100. The test has 270 tokens on average.", False),
    ],
)
def test_rows_below_the_bound_of_their_card(tmp_path: Path, text: str, says: bool) -> None:
    found = audited(tmp_path, {"train.py": SFT, "README.md": text}, select=("OPT004",)).findings
    assert [("295 tokens a pass" in one.message) for one in found] == [True] * says


LOADED = """import sys, torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer
# an A100-80GB
LEAN = {lean}
tok = AutoTokenizer.from_pretrained('EleutherAI/pythia-410m')
model = AutoModelForCausalLM.from_pretrained('EleutherAI/pythia-410m').cuda()
{switch}
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
collate = lambda rows: tok(rows, return_tensors='pt', padding=True, truncation=True, max_length={length})
for batch in DataLoader(rows, batch_size=8, collate_fn=collate):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("lean", "length", "switch", "says"),
    [
        (True, 512, "model.gradient_checkpointing_enable()", True),
        (True, 512, "if LEAN:\n    model.gradient_checkpointing_enable()", True),
        (False, 512, "if LEAN:\n    model.gradient_checkpointing_enable()", False),
        (True, 512, "if '--lean' in sys.argv:\n    model.gradient_checkpointing_enable()", False),
        (True, 8192, "model.gradient_checkpointing_enable()", False),
    ],
)
def test_checkpointing_of_a_loop(tmp_path: Path, lean: bool, length: int, switch: str, says: bool) -> None:
    files = {"train.py": LOADED.format(lean=lean, length=length, switch=switch)}
    assert bool(audited(tmp_path, files, select=("MEM001",)).findings) == says
