"""Promise: weights alone that are read by a pickle told to run anything are found; a checkpoint that holds more is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = """import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
{}
Trainer(model=model, args=TrainingArguments(output_dir="out")).train()
"""


@pytest.mark.parametrize(
    "lines",
    [
        "model.load_state_dict(torch.load('warm.pt', weights_only=False))",
        "model.load_state_dict(torch.load(args.warm, map_location='cpu', weights_only=False), strict=False)",
        "state = torch.load('/mnt/m.pt', weights_only=False)\nmodel.load_state_dict(state)",
        "peft.set_peft_model_state_dict(model, torch.load('adapter.bin', weights_only=False))",
    ],
)
def test_weights_alone_need_no_permission(tmp_path: Path, lines: str) -> None:
    (finding,) = audited(tmp_path, {"train.py": TRAIN.format(lines)}, select=("CKP053",)).findings
    assert "weights_only=False" in finding.message
    assert finding.place.line == 5


def test_also_in_a_module_of_the_program(tmp_path: Path) -> None:
    helper = (
        "import torch\n\n\ndef warm(model, path):\n    model.load_state_dict(torch.load(path, weights_only=False))\n"
    )
    files = {"start.py": helper, "train.py": "from start import warm\n" + TRAIN.format("warm(model, 'a.pt')")}
    assert audited(tmp_path, files, select=("CKP053",)).findings


@pytest.mark.parametrize(
    "lines",
    [
        "model.load_state_dict(torch.load('warm.pt', weights_only=True))",
        "model.load_state_dict(torch.load('warm.pt'))",
        "state = torch.load('a.pt', weights_only=False)\nmodel.load_state_dict(state['model'])\nnumpy_state = state['rng']",
        "state = torch.load('a.pt', weights_only=False)\nif 'model' in state:\n    state = state.pop('model')\n"
        "model.load_state_dict(state)",
        "torch.save(model.state_dict(), PATH)\nmodel.load_state_dict(torch.load(PATH, weights_only=False))",
        "optimizer.load_state_dict(torch.load('o.pt', weights_only=False))",
        "whole = torch.load('model.pt', weights_only=False)",
    ],
)
def test_what_may_hold_more_is_not(tmp_path: Path, lines: str) -> None:
    assert not audited(tmp_path, {"train.py": TRAIN.format(lines)}, select=("CKP053",)).findings
