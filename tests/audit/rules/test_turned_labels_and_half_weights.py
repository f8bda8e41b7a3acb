"""Promise: labels that are turned round are found, files of tokens without ends, and loops that train float16 weights."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited
from tests.audit.rules.scripts import said

_ENCODE = """
from transformers import Trainer
def encode(row):
    prompt, answer = tok(row["p"])["input_ids"], tok(row["a"])["input_ids"]
    ids = prompt + answer
    {lines}
    return {{"input_ids": ids, "labels": labels}}
Trainer(model, train_dataset=rows.map(encode)).train()
"""


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("labels = prompt + [-100] * len(answer)", "the wrong way"),
        ("labels = [-100] * len(prompt) + answer", ""),
        ("labels = ids + [-100] * len(padding)", ""),
        ("labels = [-100] * len(ids)", "nothing is learned"),
        ("labels = [-100] * len(ids)\n    labels[len(prompt):] = answer", ""),
        ("labels = [-100] * len(ids)\n    fill(labels, ids)", ""),
        ("labels = ids\n    if not answer: labels = [-100] * len(ids)", ""),
    ],
)
def test_labels_the_wrong_way_round(tmp_path: Path, lines: str, says: str) -> None:
    found = said("MSK001", tmp_path, _ENCODE.format(lines=lines))
    assert [says in one.message for one in found] == [True] * bool(says)


_FILE = """
import numpy as np
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("{model}")
ids = []
for row in dataset:
    ids.extend(tok.encode(row["text"]){end})
np.array(ids, dtype=np.uint16).tofile("train.bin")
"""
_READER = (
    'import numpy as np\ndata = np.memmap("train.bin")\nfor step in range(9):\n    loss.backward()\n    opt.step()\n'
)


@pytest.mark.parametrize(
    ("model", "end", "reader", "found"),
    [
        ("gpt2", "", _READER, True),
        ("Qwen/Qwen2.5-0.5B", "", _READER, True),
        ("gpt2", " + [tok.eos_token_id]", _READER, False),
        ("meta-llama/Llama-3.2-1B", "", _READER, False),
        ("gpt2", "", "print(1)\n", False),
    ],
)
def test_a_file_of_tokens(tmp_path: Path, model: str, end: str, reader: str, found: bool) -> None:
    files = {"prepare.py": _FILE.format(model=model, end=end), "train.py": reader}
    assert bool(audited(tmp_path, files, select=("MSK058",)).findings) is found


_HALF = """
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"{given}){half}.cuda()
{more}
opt = torch.optim.{optimizer}
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("given", "half", "more", "optimizer", "found"),
    [
        ("", ".half()", "", "AdamW(model.parameters(), lr=1e-5)", True),
        ("", "", "model.half()", "Adam(model.parameters(), lr=1e-5)", True),
        (", torch_dtype=torch.float16", "", "", "AdamW(model.parameters(), lr=1e-5, eps=1e-8)", True),
        (", torch_dtype=torch.float16", "", "", "AdamW(model.parameters(), lr=1e-5, eps=1e-4)", False),
        (", torch_dtype=torch.bfloat16", "", "", "AdamW(model.parameters(), lr=2e-4)", False),
        (", torch_dtype=torch.bfloat16", "", "", "AdamW(model.parameters(), lr=1e-5)", True),  # whose steps round away
        ("", ".half()", "model = get_peft_model(model, LoraConfig())", "AdamW(model.parameters(), lr=1e-5)", False),
        ("", "", "teacher.half()", "AdamW(model.parameters(), lr=1e-5)", False),
    ],
)
def test_a_loop_in_half_precision(
    tmp_path: Path, given: str, half: str, more: str, optimizer: str, found: bool
) -> None:
    text = _HALF.format(given=given, half=half, more=more, optimizer=optimizer)
    assert bool(said("PRC004", tmp_path, text)) is found
