"""Promise: a precision, a kernel of the optimizer or a way of checkpointing that a file asks for and the run does not get is
said where it is lost, and what reaches the run is left alone."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


def found(folder: Path, files: dict[str, str], code: str) -> list[str]:
    return [one.message for one in audited(folder, files, select=(code,)).findings]


LOOP = """import contextlib
import os
import sys

import torch
import yaml

{}
model.cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for batch in loader:
    with {}:
        loss = model(**batch).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
FILE = "batch: 16\nlr: 0.0006\nprecision: {}\nseed: 1\n"
READ = 'cfg = yaml.safe_load(open("a.yaml"))\n'
CHOSEN = READ + 'amp = torch.autocast("cuda") if cfg["precision"] == "{}" else contextlib.nullcontext()'
TABLE = READ + 'amp = torch.autocast("cuda", {{"{}": torch.bfloat16}}.get(cfg["precision"]))'
VARIABLE = 'on = os.environ.get("{}", "fp32") != "fp32"'
ENTERED = 'torch.autocast("cuda", torch.bfloat16, enabled=on)'
MAKE = "export PRECISION := bf16\n\nrun:\n\tpython train.py\n"
TRAINER = """import sys

import yaml
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

cfg = yaml.safe_load(open(sys.argv[1]))
kw = dict(cfg["trainer"])
kw["bf16"] = cfg["{}"].get("bf16", False)
model = AutoModelForCausalLM.from_pretrained(cfg["model"])
Trainer(model, TrainingArguments(**kw), train_dataset=load(cfg["data"])).train()
"""
SECTIONS = "model: gpt2\ndata: a.jsonl\nprecision:\n  bf16: true\ntrainer:\n  output_dir: out\n"


@pytest.mark.parametrize(
    ("files", "right"),
    [
        (
            {"a.yaml": FILE.format("bf16"), "train.py": LOOP.format(CHOSEN.format("bfloat16"), "amp")},
            {"a.yaml": FILE.format("bf16"), "train.py": LOOP.format(CHOSEN.format("bf16"), "amp")},
        ),
        (
            {"a.yaml": FILE.format("bfloat16"), "train.py": LOOP.format(TABLE.format("bf16"), "amp")},
            {"a.yaml": FILE.format("bf16"), "train.py": LOOP.format(TABLE.format("bf16"), "amp")},
        ),
        (
            {"Makefile": MAKE, "train.py": LOOP.format(VARIABLE.format("AMP_DTYPE"), ENTERED)},
            {"Makefile": MAKE, "train.py": LOOP.format(VARIABLE.format("PRECISION"), ENTERED)},
        ),
        (
            {"r.yaml": SECTIONS, "train.py": TRAINER.format("trainer")},
            {"r.yaml": SECTIONS, "train.py": TRAINER.format("precision")},
        ),
    ],
)
def test_precisions_by_other_words(tmp_path: Path, files: dict[str, str], right: dict[str, str]) -> None:
    assert any("asks for 16 bits" in one for one in found(tmp_path / "wrong", files, "PRC006"))
    assert not any("asks for 16 bits" in one for one in found(tmp_path / "right", right, "PRC006"))


ADAM = """import torch


class Plain(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            {}


model.cuda()
opt = Plain(model.parameters(), {{}})
for batch in loader:
    model(**batch).loss.backward()
    opt.step()
    opt.zero_grad()
"""
ONE_BY_ONE = """for p in group["params"]:
                s = self.state[p]
                s["m"].mul_(0.9).add_(p.grad, alpha=0.1)
                s["v"].mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                p.addcdiv_(s["m"], s["v"].sqrt().add_(1e-8), value=-1e-3)"""
TOGETHER = """grads = [p.grad for p in group["params"]]
            torch._foreach_mul_(group["m"], 0.9)
            torch._foreach_sqrt(group["v"])"""
SIGNS = """for p in group["params"]:
                s = self.state[p]
                p.add_(s["m"].mul_(0.9).add_(p.grad, alpha=0.1).sign(), alpha=-1e-4)"""
ZERO = (
    '{{"zero_optimization": {}, "bf16": {{"enabled": true}},'
    ' "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-5{}}}}}}}'
)
LIT = """import lightning as L
import torch


class Lit(L.LightningModule):
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), **self.cfg.{})
"""
SECTION = "optim:\n  lr: 2.0e-5\n  fused: false\ncritic:\n  lr: 1.0e-3\n"


@pytest.mark.parametrize(
    ("files", "right"),
    [
        ({"train.py": ADAM.format(ONE_BY_ONE)}, {"train.py": ADAM.format(TOGETHER)}),
        ({"train.py": ADAM.format(ONE_BY_ONE)}, {"train.py": ADAM.format(SIGNS)}),
        (
            {"ds.json": ZERO.format('{"stage": 2}', ', "torch_adam": true')},
            {"ds.json": ZERO.format('{"stage": 2}', "")},
        ),
        (
            {"ds.json": ZERO.format('{"stage": 2}', ', "torch_adam": true')},
            {"ds.json": ZERO.format('{"stage": 2, "offload_optimizer": {"device": "cpu"}}', ', "torch_adam": true')},
        ),
        ({"c.yaml": SECTION, "lit.py": LIT.format("optim")}, {"c.yaml": SECTION, "lit.py": LIT.format("critic")}),
    ],
)
def test_optimizers_that_are_told_or_written_to_be_slow(
    tmp_path: Path, files: dict[str, str], right: dict[str, str]
) -> None:
    unfused = [one for one in found(tmp_path / "wrong", files, "OPT001") if "without `fused" not in one]
    assert unfused
    assert not [one for one in found(tmp_path / "right", right, "OPT001") if "without `fused" not in one]


FACTORY = (
    "model_name_or_path: a/b\nstage: sft\nfinetuning_type: lora\ndataset: d\ntemplate: qwen\nuse_reentrant_gc: {}\n"
)


def test_checkpointing_of_llama_factory(tmp_path: Path) -> None:
    assert found(tmp_path / "wrong", {"a.yaml": FACTORY.format("true")}, "MEM002")
    assert not found(tmp_path / "right", {"a.yaml": FACTORY.format("false")}, "MEM002")
    off = FACTORY.format("true") + "disable_gradient_checkpointing: true\n"
    assert not found(tmp_path / "off", {"a.yaml": off}, "MEM002")
