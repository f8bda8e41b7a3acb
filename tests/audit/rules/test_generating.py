"""Promise: a program that generates on the host, where the GPU is meant, is found by what it says itself."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

HF = """import sys
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForCausalLM.from_pretrained("{name}"{load})
{more}
ids = tokenizer(sys.argv[1], return_tensors="pt"){there}
print(tokenizer.decode(model.generate(**ids, max_new_tokens=100)[0]))
"""
OWN = """import argparse
import torch
from safetensors.torch import load_model

from model import Net

parser = argparse.ArgumentParser(description="{about}")
parser.add_argument("--weights", required=True)
args = parser.parse_args()
model = Net().eval(){there}
load_model(model, args.weights)
ids = torch.tensor([[1, 2]])
with torch.no_grad():
    for _ in range(200):
        positions = torch.arange(ids.shape[1], device=ids.device)
        ids = torch.cat([ids, model(ids, positions)[:, -1:].argmax(-1)], 1)
print(ids)
"""
NET = "import torch.nn as nn\n\n\nclass Net(nn.Module):\n    def forward(self, ids, positions):\n        return ids\n"


def hosts(folder: Path, text: str) -> int:
    return len(audited(folder, {"generate.py": text, "model.py": NET}, select=("HST004",)).findings)


@pytest.mark.parametrize(
    ("name", "load", "more", "there", "found"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "", "", "", 1),
        ("Qwen/Qwen2.5-0.5B", ", torch_dtype='bfloat16'", "", "", 1),
        ("Qwen/Qwen2.5-7B", "", "model = PeftModel.from_pretrained(model, 'out').eval()", "", 1),
        ("Qwen/Qwen2.5-0.5B", "", "# writes on the GPU", "", 1),
        ("Qwen/Qwen2.5-0.5B", "", "", "", 0),
        ("Qwen/Qwen2.5-7B", ", device_map='auto'", "", ".to(model.device)", 0),
        ("Qwen/Qwen2.5-7B", "", "model.cuda()", ".to('cuda')", 0),
        ("Qwen/Qwen2.5-7B", "", "print('cpu')", ".to('cpu')", 0),
        ("Qwen/Qwen2.5-7B", ", load_in_4bit=True", "", "", 0),
    ],
)
def test_a_large_model_that_generates_on_the_host(
    tmp_path: Path, name: str, load: str, more: str, there: str, found: int
) -> None:
    assert hosts(tmp_path, HF.format(name=name, load=load, more=more, there=there)) == found


@pytest.mark.parametrize(
    ("about", "there", "found"),
    [
        ("Sample on the GPU.", "", 1),
        ("Sample with cuda tokens.", "", 1),
        ("Sample.", "", 0),
        ("Sample on the GPU.", ".cuda()", 0),
        ("Sample on the GPU.", ".to('cuda')", 0),
    ],
)
def test_a_model_of_ones_own_in_a_file_that_speaks_of_the_gpu(
    tmp_path: Path, about: str, there: str, found: int
) -> None:
    assert hosts(tmp_path, OWN.format(about=about, there=there)) == found
