"""Promise: what a loop hands to helpers and meters, and what a release of a trainer refuses, is judged where it happens, and
nothing is said where the helper keeps to the device, the reference is kept, or the release takes both."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


def found(folder: Path, files: dict[str, str], code: str) -> list[str]:
    return [one.message for one in audited(folder, files, select=(code,)).findings]


LOOP = """import torch
from meter import Meter

model.cuda()
meter = Meter()
for batch in loader:
    loss = model(**batch).loss
    {}
    optimizer.step()
    optimizer.zero_grad()
    {}
print(meter.mean)
"""
METER = """class Meter:
    def __init__(self):
        self.total, self.n = 0.0, 0

    def update(self, value):
        {}

    @property
    def mean(self):
        return float(self.total) / self.n
"""
READS = METER.format("self.total += value.detach().cpu().item()")
KEEPS = METER.format("self.total = self.total + value.detach()")
AT_TIMES = METER.format("if self.n % 50 == 0:\n            self.total += value.item()")
LOSS = """from transformers import Trainer


class PairTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        a = model(input_ids=inputs["a"]).logits.squeeze(-1)
        b = model(input_ids=inputs["b"]).logits.squeeze(-1)
        loss = -(a - b).sigmoid().log().mean()
        {}
        return loss
"""


@pytest.mark.parametrize(
    ("files", "right"),
    [
        (
            {"train.py": LOOP.format("loss.backward()", "meter.update(loss)"), "meter.py": READS},
            {"train.py": LOOP.format("loss.backward()", "meter.update(loss)"), "meter.py": KEEPS},
        ),
        (
            {"train.py": LOOP.format("loss.backward()", "meter.update(loss)"), "meter.py": READS},
            {"train.py": LOOP.format("loss.backward()", "meter.update(loss)"), "meter.py": AT_TIMES},
        ),
        (
            {
                "meter.py": KEEPS,
                "train.py": LOOP.format("engine.backward(loss)", "if loss < best:\n        best = loss.detach()"),
            },
            {"train.py": LOOP.format("engine.backward(loss)", "best = torch.minimum(best, loss)"), "meter.py": KEEPS},
        ),
        (
            {
                "train.py": LOOP.format("scaler.scale(loss).backward()", "if loss > 10:\n        break"),
                "meter.py": KEEPS,
            },
            {
                "train.py": LOOP.format("scaler.scale(loss).backward()", "if step > 10:\n        break"),
                "meter.py": KEEPS,
            },
        ),
        (
            {"t.py": LOSS.format("self.history.append((a - b).mean().item())")},
            {"t.py": LOSS.format("self.history.append((a - b).mean().detach())")},
        ),
    ],
)
def test_reads_of_what_the_model_gave(tmp_path: Path, files: dict[str, str], right: dict[str, str]) -> None:
    assert found(tmp_path / "wrong", files, "HST001")
    assert not found(tmp_path / "right", right, "HST001")


LAYER = """import math

import torch
from torch import nn


class Layer(nn.Module):
    def forward(self, x, lengths):
        t = x.size(1)
        {}
        return x[:, :n]
"""


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("n = int(torch.log(torch.tensor(float(t), device=x.device)).ceil())", "n = math.ceil(math.log(t))"),
        ("n = int(torch.zeros(2, device=x.device).cumsum(0)[1])", "n = int(torch.zeros(2).cumsum(0)[1])"),
        ("m = lengths.max()\n        n = int(m)", "m = t // 2\n        n = int(m)"),
        ("n = 4\n        torch.cuda.synchronize()", "n = 4"),
        ("n = 4\n        x = x.repeat_interleave(lengths, 1)", "n = 4\n        x = x.repeat_interleave(2, 1)"),
        (
            "n = 4\n        if self.training:\n            dead = (x < 1).nonzero().tolist()",
            "n = 4\n        if self.look:\n            dead = (x < 1).nonzero().tolist()",
        ),
    ],
)
def test_forward_passes_that_ask_the_device(tmp_path: Path, wrong: str, right: str) -> None:
    assert found(tmp_path / "wrong", {"m.py": LAYER.format(wrong)}, "HST002")
    assert not found(tmp_path / "right", {"m.py": LAYER.format(right)}, "HST002")


FIT = """import torch
from transformers import AutoModelForCausalLM
from losses import ipo

policy = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
old = AutoModelForCausalLM.from_pretrained("gpt2").cuda().eval().requires_grad_(False)
opt = torch.optim.AdamW(policy.parameters(), lr=1e-6, fused=True)
for batch in pairs("chosen", "rejected"):
    loss = ipo(policy, {}, batch)
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
IPO = """import torch


def ipo(policy, base, batch):
    got = score(policy, batch)
    with torch.no_grad():
        held = score(base, batch)
    good, bad = (got - held).chunk(2)
    return ((good - bad - 5) ** 2).mean()
"""
KTO = """from transformers import AutoModelForCausalLM
from trl import KTOConfig, KTOTrainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
args = KTOConfig("out", num_train_epochs={}, precompute_ref_log_probs={})
KTOTrainer(model, args=args, train_dataset=rows).train()
"""
UNSLOTH = """from unsloth import FastLanguageModel
from trl import DPOConfig, DPOTrainer

model, tok = FastLanguageModel.from_pretrained("unsloth/zephyr-sft-bnb-4bit", load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=16)
DPOTrainer(model=model, args=DPOConfig("out", num_train_epochs={}), train_dataset=pairs).train()
"""


@pytest.mark.parametrize(
    ("files", "right"),
    [
        ({"fit.py": FIT.format("old"), "losses.py": IPO}, {"fit.py": FIT.format("policy"), "losses.py": IPO}),
        ({"kto.py": KTO.format(6, False)}, {"kto.py": KTO.format(6, True)}),
        ({"dpo.py": UNSLOTH.format(3)}, {"dpo.py": UNSLOTH.format(1)}),
    ],
)
def test_references_that_run_again(tmp_path: Path, files: dict[str, str], right: dict[str, str]) -> None:
    assert found(tmp_path / "wrong", files, "DPO001")
    assert not found(tmp_path / "right", right, "DPO001")


GRPO = """from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

args = GRPOConfig("out", use_liger_loss=True)
GRPOTrainer(model="Qwen/Qwen2.5-0.5B", args=args, reward_funcs=short, train_dataset=rows{}).train()
"""
LORA = ", peft_config=LoraConfig(r=8)"
DPO = "model_name_or_path: Qwen/Qwen3-4B\ndataset_name: pairs\nuse_liger_kernel: true\nbeta: 0.1\nuse_peft: {}\n"
FACTORY = (
    "model_name_or_path: a/b\nstage: {}\nfinetuning_type: lora\nenable_liger_kernel: true\ndataset: d\ntemplate: qwen\n"
)


@pytest.mark.parametrize(
    ("files", "right"),
    [
        (
            {"g.py": GRPO.format(LORA), "requirements.txt": "trl==0.17.0\n"},
            {"g.py": GRPO.format(LORA), "requirements.txt": "trl==0.19.1\n"},
        ),
        (
            {"g.py": GRPO.format(LORA), "requirements.txt": "trl==0.17.0\n"},
            {"g.py": GRPO.format(""), "requirements.txt": "trl==0.17.0\n"},
        ),
        (
            {"run.sh": "trl dpo --config d.yaml\n", "d.yaml": DPO.format("true"), "requirements.txt": "trl==1.0.0\n"},
            {"run.sh": "trl dpo --config d.yaml\n", "d.yaml": DPO.format("true"), "requirements.txt": "trl==1.8.0\n"},
        ),
        ({"dpo.yaml": FACTORY.format("dpo")}, {"sft.yaml": FACTORY.format("sft")}),
    ],
)
def test_ligers_loss_that_is_refused(tmp_path: Path, files: dict[str, str], right: dict[str, str]) -> None:
    assert found(tmp_path / "wrong", files, "CMP001")
    assert not found(tmp_path / "right", right, "CMP001")
