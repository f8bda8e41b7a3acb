"""Promise: a loop over new layers without a seed is found, whoever makes them; one that is seeded or loads all is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

NET = """from torch import nn


class Gate(nn.Module):
    def __init__(self, dim):
        super().__init__()
        {}


class Net(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gate = Gate(dim)
"""
LOOP = """import torch
from torch.utils.data import DataLoader, DistributedSampler
from transformers import (AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, LlamaConfig,
                          LlamaForCausalLM)
from net import Net
{}
loader = DataLoader(rows, sampler=DistributedSampler(rows, seed=11))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
for batch in loader:
    loss = model(batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("layer", "model", "found"),
    [
        ("self.out = nn.Linear(dim, 1)", "model = Net(8)", True),
        ("self.out = nn.Parameter(torch.randn(dim))", "model = Net(8).cuda()", True),
        ("self.out = nn.GELU()", "model = Net(8)", False),
        ("self.scale = nn.Parameter(torch.ones(dim))", "model = Net(8)", False),
        ("pass", "model = LlamaForCausalLM(LlamaConfig(hidden_size=64))", True),
        ("pass", "model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained('a/b'))", True),
        ("pass", "model = AutoModelForSequenceClassification.from_pretrained('a/b', num_labels=2)", True),
        ("pass", "model = AutoModelForCausalLM.from_pretrained('a/b')", False),
        ("self.out = nn.Linear(dim, 1)", "torch.manual_seed(3)\nmodel = Net(8)", False),
        ("self.out = nn.Linear(dim, 1)", "seed_everything(3)\nmodel = Net(8)", False),
    ],
)
def test_new_layers_want_a_seed(tmp_path: Path, layer: str, model: str, found: bool) -> None:
    files = {"net.py": NET.format(layer), "train.py": LOOP.format(model)}
    said = audited(tmp_path, files, select=("MSR003",)).findings
    assert [one.place.line for one in said] == ([6 + model.count("\n")] if found else [])


def test_what_only_evaluates_wants_none(tmp_path: Path) -> None:
    text = "import torch\nfrom net import Net\n\nmodel = Net(8)\nmodel.load_state_dict(torch.load('a.pt'))\nmodel(x)\n"
    files = {"net.py": NET.format("self.out = nn.Linear(dim, 1)"), "eval.py": text}
    assert not audited(tmp_path, files, select=("MSR003",)).findings


@pytest.mark.parametrize("seed", ["", "torch.manual_seed(0)\n"])
def test_layers_of_a_function_and_of_a_class_that_trains(tmp_path: Path, seed: str) -> None:
    steps = "loss.backward(); opt.step(); opt.zero_grad()"
    function = "from torch import nn\n\n\ndef build(d):\n    return nn.Sequential(nn.Linear(d, d), nn.GELU())\n"
    files = {
        "model.py": function,
        "train.py": f"import torch\nfrom model import build\n{seed}net = build(4)\n"
        f"for b in loader:\n    loss = net(b); {steps}\n",
    }
    assert bool(audited(tmp_path / "function", files, select=("MSR003",)).findings) is (not seed)
    runner = (
        "import torch\nfrom net import Net\n\n\nclass Runner:\n    def __init__(self):\n"
        f"        {seed.strip() or 'pass'}\n        self.model = Net(8)\n\n    def fit(self, opt):\n"
        f"        for b in loader:\n            loss = self.model(b); {steps}\n"
    )
    files = {"net.py": NET.format("self.out = nn.Linear(dim, 1)"), "train.py": runner}
    assert bool(audited(tmp_path / "class", files, select=("MSR003",)).findings) is (not seed)


@pytest.mark.parametrize(("more", "found"), [("", True), ("torch.manual_seed(cfg.seed)\n", False)])
def test_a_seed_of_the_configuration_that_nobody_sets(tmp_path: Path, more: str, found: bool) -> None:
    head = "import yaml\nfrom types import SimpleNamespace\ncfg = SimpleNamespace(**yaml.safe_load(open('c.yaml')))\n"
    text = LOOP.format(f"{more}model = Net(8)").replace("lr=2e-5", "lr=cfg.lr")
    files = {
        "net.py": NET.format("self.out = nn.Linear(dim, 1)"),
        "train.py": text.replace("import torch\n", f"import torch\n{head}", 1),
        "c.yaml": "lr: 2.0e-5\nseed: 1337\n",
    }
    said = audited(tmp_path, files, select=("MSR003",)).findings
    assert [any(place.file == "c.yaml" for place in one.also) for one in said] == ([True] if found else [])
