"""What comes near a fault and is none, each beside the fault itself."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.audit.made_up import audited

_PAIRS = """from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
HEADER = "<|im_start|>assistant\\n"


def pair(row):
    messages = [{"role": "user", "content": row["question"]}]
    %s
"""
_ROW = '{"prompt": prompt, "chosen": %s, "rejected": row["worse"]}'
_RENDER = "prompt = tokenizer.apply_chat_template(messages, tokenize=False%s)\n    return "

_STEP = """import torch
from torch.nn import functional as F


def step(model, batch, opt):
    logits = model(batch["ids"].cuda()).logits
    losses = F.cross_entropy(logits.transpose(1, 2), batch["labels"].cuda(), reduction="none")
    mask = batch["mask"].cuda()
    loss = %s
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
_RANKS = """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model, loader, opt):
    dist.init_process_group("nccl")
    model = DDP(model.cuda())
    n = dist.get_world_size()
    for batch in loader:
        loss = model(batch["x"].cuda()).sum()
        %s
        loss.backward()
        opt.step()
        opt.zero_grad()
"""
_HALF = """import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
%s
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
%s
"""
_LABELS = """from transformers import AutoTokenizer, Trainer

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B")


def row(r):
    ids = tok(r["text"]).input_ids
    out = {"input_ids": ids, "labels": [-100] * len(ids)}
    %s
    return out


%s
Trainer(model, args, train_dataset=rows).train()
"""
_BITS = """import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

bits = BitsAndBytesConfig(load_in_4bit=True)
base = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", quantization_config=bits)
PeftModel.from_pretrained(%s, "adapter").merge_and_unload().save_pretrained("merged")
"""
_RATES = """import json

new, base = json.load(open("new.json")), json.load(open("base.json"))
base_its = base["steps_per_s"]
new_its = new["steps_per_s"]
# %s
speedup = new_its / base_its
"""
_PREPARE = """import json

import numpy as np
import tiktoken

enc = tiktoken.get_encoding("gpt2")
ids = []
for line in open("%s"):
    ids += enc.encode_ordinary(%s)
np.array(ids, dtype=np.uint16).tofile("train.bin")
"""
_TRAINS = """import numpy as np
import torch

data = np.memmap("train.bin", dtype=np.uint16, mode="r")
for start in range(0, 100_000, 1024):
    loss = model(torch.from_numpy(data[start : start + 1024].astype(np.int64)).cuda())
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
_ATTENDS = """import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", dtype=torch.bfloat16).cuda()
%s
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
%s
"""
_EAGER = 'model.set_attn_implementation("eager")'
_MATH = "def %s(q, k, v):\n    with sdpa_kernel(SDPBackend.MATH):\n        return attend(q, k, v)\n"
_LAUNCH = """MICRO=4
N=4
GLOBAL_BATCH=256
%s
torchrun --nproc_per_node=4 train.py --gradient_accumulation_steps $ACCUM
"""
_PARSER = """import argparse
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int)
parser.add_argument("--lr", type=float)
parser.add_argument("--epochs", type=int)
args = parser.parse_args(%s)
print(args.batch_size, args.lr, args.epochs)
"""
_STARTS = """import subprocess
import sys

import yaml

config = yaml.safe_load(open(%s))
%s
command = [sys.executable, "train.py"]
for key, value in config.items():
    command += [f"--{key}", str(value)]
subprocess.run(command, check=True)
"""
_KEYS = "lr: 1.0e-4\nbatch_size: 8\nepochs: 3\n"
_SFT = "# %s\nmodel_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: d.jsonl\nper_device_train_batch_size: 4\n" + (
    "gradient_accumulation_steps: 8\nbf16: true\n"
)
_TWO = "accelerate launch --num_processes 2 -m trl.scripts.sft --config sft.yaml\n"


def _accumulates(lines: str) -> Mapping[str, str]:
    parser = _PARSER.replace("batch_size", "gradient_accumulation_steps") % ""
    return {"run.sh": _LAUNCH % lines, "train.py": parser}


def _pair(answer: str, more: str = "") -> Mapping[str, str]:
    return {"train.py": _PAIRS % (_RENDER % more + _ROW % answer)}


def _trial(words: str) -> Mapping[str, str]:
    return {"train.py": f"import lightning as L\nL.Trainer(log_every_n_steps=1, {words}).fit(model, rows)\n"}


_IMAGES = (_STEP % "(losses * mask).mean()").replace("logits", "x").replace("cross_entropy", "mse_loss")
_OTHER = "%s = AutoModelForCausalLM.from_pretrained('gpt2-xl', dtype=torch.float16)\n%s.eval()"
_TURNED = '[one.replace("-", "_") for one in sys.argv[1:]]'
_OF_ANSWERS = 'def answer(ids):\n    return {"input_ids": ids, "labels": list(ids)}\n'


def _started(which: str, more: str = "", **files: str) -> Mapping[str, str]:
    named = {f"{name}.yaml": text for name, text in files.items()}
    return {"launch.py": _STARTS % (which, more), "train.py": _PARSER % "", **named}


_WITHOUT = 'config = {key: value for key, value in config.items() if key != "host"}'
_LONG = f"{_KEYS}host: x\n"
_ROWS = """import torch
from torch.utils.data import DataLoader, Dataset
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("gpt2")


class Rows(Dataset):
    def __getitem__(self, number):
        if number %s self.kept:
            self.kept[number] = tok(self.texts[number]).input_ids
        return torch.tensor(self.kept[number])


for batch in DataLoader(Rows(texts), batch_size=8):
    model(batch.cuda()).loss.backward()
    opt.step()
    opt.zero_grad()
"""
_SHOWN = 'print(tokenizer.apply_chat_template(messages, tokenize=False) + row["answer"])'


_ONCE = """
import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, default_data_collator
tok = AutoTokenizer.from_pretrained("gpt2")
torch.manual_seed(0)
class Tokenized(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        return tok(self.rows[i]["text"], truncation=True)
    def __call__(self, rows):
        return tok(rows["text"], truncation=True)
rows = load_dataset("json", data_files="rows.jsonl", split="train")
rows = rows%s
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
for batch in DataLoader(rows, batch_size=8, shuffle=True, collate_fn=default_data_collator):
    model(**batch).loss.backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("code", "files", "said"),
    [
        ("MSK059", _pair('row["better"]'), True),
        ("MSK059", _pair('HEADER + row["better"]'), False),
        ("MSK059", _pair("f\"{HEADER}{row['better']}\""), False),
        ("MSK059", _pair('row["better"]', ", chat_template=OURS"), False),
        ("MSK059", {"train.py": _PAIRS % _SHOWN}, False),
        ("MSK059", {"train.py": _PAIRS % _SHOWN.replace("print(", "return (")}, True),
        ("MSK052", {"train.py": _STEP % "(losses * mask).mean()"}, True),
        ("MSK052", {"train.py": _STEP % "(losses * mask).mean() / mask.mean()"}, False),
        ("MSK052", {"train.py": _STEP % "(losses * mask).mean() * mask.numel() / mask.sum()"}, False),
        ("MSK052", {"train.py": _IMAGES}, False),
        ("DST050", {"train.py": _RANKS % "loss = loss / n"}, True),
        ("DST050", {"train.py": _RANKS % 'n = len(batch["x"])\n        loss = loss / n'}, False),
        ("PRC004", {"train.py": _HALF % ("model.half()", "")}, True),
        ("PRC004", {"train.py": _HALF % ("", 'model.half().save_pretrained("out")')}, False),
        ("PRC004", {"train.py": _HALF % (_OTHER % ("big", "big"), "")}, False),
        ("PRC004", {"train.py": _HALF % (_OTHER % ("model", "model"), "")}, True),
        ("MSK001", {"train.py": _LABELS % ("pass", "")}, True),
        ("MSK001", {"train.py": _LABELS % ('out["labels"][4:] = ids[4:]', "")}, False),
        ("MSK001", {"train.py": _LABELS % ("fill(out, r)", "")}, False),
        ("MSK001", {"train.py": _LABELS % ("print(out)", "")}, True),
        ("MSK001", {"train.py": _LABELS % ("pass", _OF_ANSWERS)}, False),
        ("LOR008", {"train.py": _BITS % "base"}, True),
        ("LOR008", {"train.py": _BITS % "load_whole()"}, False),
        ("LOR008", {"train.py": _BITS % "base.dequantize()"}, False),
        ("MSR005", {"compare.py": _RATES % "micro-batch 8 against 32"}, True),
        ("MSR005", {"compare.py": _RATES % "the same micro-batch in both"}, False),
        ("MSR005", {"compare.py": _RATES % "same card, batch_size of 1"}, True),
        ("HST001", _trial("max_epochs=3"), True),
        ("HST005", {"train.py": _ROWS % "not in"}, False),
        ("HST005", {"train.py": _ROWS % "in"}, True),
        ("HST001", _trial("max_epochs=3, overfit_batches=4"), False),
        ("HST001", _trial("max_epochs=1, limit_train_batches=20"), False),
        ("MSK058", {"prepare.py": _PREPARE % ("docs.jsonl", 'json.loads(line)["text"]'), "train.py": _TRAINS}, True),
        ("MSK058", {"prepare.py": _PREPARE % ("shakespeare.txt", "line"), "train.py": _TRAINS}, False),
        ("ATT004", {"train.py": _ATTENDS % (_EAGER, "")}, True),
        ("ATT004", {"train.py": _ATTENDS % ("", _EAGER)}, False),
        ("ATT004", {"train.py": _ATTENDS % (_MATH % "attention", "")}, True),
        ("ATT004", {"train.py": _ATTENDS % (_MATH % "check_kernel", "")}, False),
        ("DST052", _accumulates("ACCUM=$((GLOBAL_BATCH / MICRO))"), True),
        ("DST052", _accumulates("ACCUM=$((GLOBAL_BATCH / MICRO))\nACCUM=$((ACCUM / N))"), False),
        ("DST052", _accumulates("STEP=$((MICRO * N))\nACCUM=$((GLOBAL_BATCH / STEP))"), False),
        ("DST052", _accumulates("GLOBAL_BATCH=$((256 / 4))\nACCUM=$((GLOBAL_BATCH / MICRO))"), False),
        ("DST052", _accumulates("GLOBAL_BATCH=$((32 * 8))\nACCUM=$((GLOBAL_BATCH / MICRO))"), True),
        ("CFG008", {"run.sh": "python train.py --batch-size 4\n", "train.py": _PARSER % ""}, True),
        ("CFG008", {"run.sh": "python train.py --batch-size 4\n", "train.py": _PARSER % _TURNED}, False),
        ("CFG008", _started('"a.yaml"', a=_LONG), True),
        ("CFG008", _started('"a.yaml"', 'config.pop("host")', a=_LONG), False),
        ("CFG008", _started('"a.yaml"', _WITHOUT, a=_LONG), False),
        ("CFG008", _started('"a.yaml"', a=_KEYS, b=_LONG), False),
        ("CFG008", _started("sys.argv[1]", b=_LONG), True),
        ("CFG011", {"run.sh": _TWO, "sft.yaml": _SFT % "effective batch: 4 rows x 8 accumulated x 2 GPUs"}, False),
        ("CFG011", {"run.sh": _TWO, "sft.yaml": _SFT % "effective batch: 4 rows x 4 accumulated x 2 GPUs"}, True),
        ("CFG011", {"run.sh": _TWO, "sft.yaml": _SFT % "effective batch 32 on each of two GPUs"}, False),
        ("CFG011", {"run.sh": _TWO, "sft.yaml": _SFT % "effective batch 32"}, True),
        ("HST005", {"train.py": _ONCE % ".map(Tokenized(tok), batched=True)"}, False),
        ("HST005", {"train.py": _ONCE.replace("rows = rows%s", "rows = Tokenized(rows)")}, True),
    ],
)  # fmt: skip
def test_what_is_near_a_fault_is_told_from_it(tmp_path: Path, code: str, files: Mapping[str, str], said: bool) -> None:
    found = [one.code for one in audited(tmp_path, files).findings]
    assert (code in found) == said, found


@pytest.mark.parametrize("key", ["pipeline_model_parallel_size", "tensor_parallel_size", "cp_size"])
def test_processes_that_hold_one_model_together_make_no_rows(tmp_path: Path, key: str) -> None:
    for size, said in ((1, True), (2, False)):
        files = {"run.sh": _TWO, "sft.yaml": _SFT % "effective batch 16" + f"{key}: {size}\n"}
        found = [one.code for one in audited(tmp_path / str(size), files).findings]
        assert ("CFG011" in found) is said


_ADDED_TO = """import subprocess
import sys

command = [sys.executable, "train.py"]
%s
subprocess.run(command, check=True)
"""


def test_a_command_that_is_added_to_itself_is_read(tmp_path: Path) -> None:
    """It was followed without an end, and the whole audit stopped."""
    longer = _ADDED_TO % 'command = command + ["--rows", "4"]\nextra = more + ["x"]\nmore = extra + ["y"]'
    found = [one.code for one in audited(tmp_path, {"launch.py": longer, "train.py": _PARSER % ""}).findings]
    assert "CFG008" in found


def test_methods_that_call_each_other_are_read_once(tmp_path: Path) -> None:
    """A chain of methods took a time that grew with the square of their number."""
    chain = "".join(f"    def f{n}(self, x):\n        return self.f{n + 1}(x)\n" for n in range(400))
    last = "    def f400(self, x):\n        if x.isnan().any():\n            raise ValueError\n        return x\n"
    first = "from torch import nn\n\n\nclass M(nn.Module):\n    def forward(self, x):\n        return self.f0(x)\n"
    step = "for x in rows:\n    M().cuda()(x).backward()\n    opt.step()\n    opt.zero_grad()\n"
    began = time.process_time()
    found = audited(tmp_path, {"train.py": first + chain + last + step}).findings
    assert "HST002" in [one.code for one in found]
    assert time.process_time() - began < 5
