"""Promise: checkpoints that cannot be gone on from, and code of others, are found in code."""

from pathlib import Path

import pytest

from tests.audit.rules.scripts import said

MODEL = (
    "import torch\nfrom transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('a/b')\n"
)
LOOP = """
import torch
for epoch in range(3):
    for step, batch in enumerate(loader):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step %% 100 == 0:
            %s
    %s
%s
"""
TRL = """
from trl import SFTConfig, SFTTrainer
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(%s)
SFTTrainer(model, args=SFTConfig("out"))
"""
FOUND = [
    ("CKP051", MODEL + "torch.save(model, 'model.pt')\n"),
    ("CKP051", MODEL + "torch.save(model.state_dict(), 'model.pt')\n"),
    ("CKP051", MODEL + "torch.save(accelerator.unwrap_model(model).state_dict(), 'model.pt')\n"),
    ("CKP002", LOOP % ("torch.save(model.state_dict(), 'a.pt')", "", "")),
    ("CKP002", LOOP % ("pass", "model.save_pretrained('out')", "")),
    ("CKP002", LOOP % ("accelerator.save_state('out')", "model.save_pretrained('out')", "")),  # and nothing loads it
    ("CKP053", TRL % "'someone/model', trust_remote_code=True"),
    ("CKP053", TRL % "'someone/model', trust_remote_code=True, revision='main'"),
]
LEFT = [
    ("CKP051", MODEL + "torch.save({'model': model.state_dict(), 'optimizer': o.state_dict()}, 'last.pt')\n"),
    ("CKP051", MODEL + "torch.save(model.state_dict(), 'model.pt')\nmodel.save_pretrained('out')\n"),
    ("CKP051", "import torch\ntorch.save(model.state_dict(), 'model.pt')\n"),  # no model of transformers
    ("CKP051", MODEL + "torch.save(rows, 'rows.pt')\n"),
    ("CKP002", LOOP % ("torch.save({'m': model.state_dict(), 'o': optimizer.state_dict()}, 'a.pt')", "", "")),
    ("CKP002", "accelerator.load_state('out')\n" + LOOP % ("accelerator.save_state('out')", "", "")),
    ("CKP002", LOOP % ("pass", "", "model.save_pretrained('out')")),  # once, at the end
    ("CKP002", LOOP % ("pass", "tokenizer.save_pretrained('out')", "")),
    ("CKP053", TRL % "'someone/model'"),
    ("CKP053", TRL % "'someone/model', trust_remote_code=False"),
    ("CKP053", TRL % "'./model', trust_remote_code=True"),
    ("CKP053", TRL % f"'someone/model', trust_remote_code=True, revision='{'ab' * 20}'"),
    ("CKP053", TRL % "'someone/model', trust_remote_code=ask()"),
]


@pytest.mark.parametrize(("code", "text"), FOUND)
def test_found(code: str, text: str, tmp_path: Path) -> None:
    assert len(said(code, tmp_path, text)) == 1


@pytest.mark.parametrize(("code", "text"), LEFT)
def test_left_alone(code: str, text: str, tmp_path: Path) -> None:
    assert not said(code, tmp_path, text)
