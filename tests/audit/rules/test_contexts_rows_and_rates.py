"""Promise: contexts that nobody enters, rows that open another answer, documents without ends, schedules at another pace,
options that nothing reads, and attention that is written out are said in the shapes that people write, and the nearest right
thing is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

LOOP = """import argparse
import torch
from torch import nn
from transformers import get_cosine_schedule_with_warmup
parser = argparse.ArgumentParser()
parser.add_argument("--accum", type=int, default=8)
{flag}
args = parser.parse_args()
model = nn.Linear(8, 8).cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
{before}
for step, batch in enumerate(loader):
{step}
    loss.backward()
    if (step + 1) % args.accum == 0:
        opt.step()
        {update}
        opt.zero_grad()
    {after}
"""
PLAIN = "    loss = model(batch).sum() / args.accum"
ENTERED = "    with amp:\n        loss = model(batch).sum() / args.accum"
AMP = "amp = {}torch.autocast('cuda', dtype=torch.bfloat16)"
SCHEDULE = "sched = get_cosine_schedule_with_warmup(opt, 10, {})"


def a_loop(*, flag: str = "", before: str = "", step: str = PLAIN, update: str = "pass", after: str = "pass") -> str:
    return LOOP.format(flag=flag, before=before, step=step, update=update, after=after)


SFT = """from datasets import load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")
{}
ds = load_dataset("json", data_files="d.jsonl", split="train").map(fmt, batched=True)
SFTTrainer("Qwen/Qwen2.5-0.5B-Instruct", args=SFTConfig(output_dir="out", seed=1), train_dataset=ds).train()
"""
OPENS = "tokenize=False, add_generation_prompt=True"
TURNS = '[{"role": "user", "content": r["q"]}, {"role": "assistant", "content": r["a"]}]'
BLOCKS = """from itertools import chain
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tok = AutoTokenizer.from_pretrained("{model}")
model = AutoModelForCausalLM.from_pretrained("{model}")
block_size = 1024
def encode(batch):
    return {encode}
def group(batch):
    ids = {join}
    return {{"input_ids": [ids[i : i + block_size] for i in range(0, len(ids), block_size)]}}
ds = load_dataset("json", data_files="d.jsonl", split="train").map(encode, batched=True).map(group, batched=True)
Trainer(model=model, args=TrainingArguments(output_dir="o", bf16=True, seed=1), train_dataset=ds).train()
"""
LLAMA, BARE = "meta-llama/Llama-3.2-1B", "tok(batch['text'], add_special_tokens=False)"
CHAIN = "list(chain.from_iterable(batch['input_ids']))"
LAYER = """import torch
from torch import nn
import torch.nn.functional as F
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.width = 8
    def forward(self, x, q, k, v):
        {}
        return y
model = Attention().cuda()
for batch in loader:
    loss = model(*batch).mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
BY_HAND = "s = (q @ k.transpose(-2, -1)) / 8.0\n        y = F.softmax(s, dim=-1) @ v"
FUSED = "y = F.scaled_dot_product_attention(q, k, v)"
DPO = """import torch
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer
policy = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B", torch_dtype=torch.bfloat16)
reference = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B"{})
DPOTrainer(policy, reference, args=DPOConfig(output_dir="o", bf16=True, seed=1), train_dataset=ds).train()
"""
DIVIDES = """import argparse
from accelerate import Accelerator
parser = argparse.ArgumentParser()
parser.add_argument("--per_device_train_batch_size", type=int, default=2)
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
args = parser.parse_args()
world = Accelerator().num_processes
accum = max(1, args.gradient_accumulation_steps // world)
"""
COUNTS = "# {}\naccelerate launch --num_processes 8 train.py --gradient_accumulation_steps 8\n"
IN_A_COMPREHENSION = (
    f"def fmt(b):\n    out = [tok.apply_chat_template(m, {OPENS}) for m in b['messages']]\n    return {{'text': out}}"
)
APPENDED = (
    f"def fmt(b):\n"
    f"    out = []\n"
    f"    for c in b['conversations']:\n"
    f"        out.append(tok.apply_chat_template(c, {OPENS}))\n"
    f"    return {{'text': out}}"
)
WRITTEN_HERE = f"def fmt(r):\n    turns = {TURNS}\n    return {{'text': tok.apply_chat_template(turns, {OPENS})}}"
BY_EINSUM = "s = torch.einsum('bqd,bkd->bqk', q, k)\n        y = torch.einsum('bqk,bkd->bqd', s.softmax(-1), v)"
RENDERED = "def fmt(b):\n    return {'text': [tok.apply_chat_template(m, tokenize=False) for m in b['messages']]}"
WITH_AN_ANSWER = (
    f"def fmt(r):\n    p = tok.apply_chat_template(r['messages'], {OPENS})\n    return {{'text': p + r['answer']}}"
)
ALL_BUT_THE_LAST = (
    f"def fmt(r):\n"
    f"    p = tok.apply_chat_template(r['messages'][:-1], {OPENS})\n"
    f"    return {{'prompt': p, 'completion': r['a']}}"
)
MORE_TURNS = (
    f"def fmt(r):\n"
    f"    turns = {TURNS}\n"
    f"    turns.append(r['last'])\n"
    f"    return {{'text': tok.apply_chat_template(turns, {OPENS}) + r['a']}}"
)
WITH_ENDS = "tok([t + tok.eos_token for t in batch['text']], add_special_tokens=False)"
CAPPED = "s = 50.0 * torch.tanh(q @ k.transpose(-2, -1) / 50.0)\n        y = F.softmax(s, dim=-1) @ v"
KEPT = "s = q @ k.transpose(-2, -1)\n        w = F.softmax(s, dim=-1)\n        self.weights = w\n        y = w @ v"


@pytest.mark.parametrize(
    ("code", "source"),
    [
        ("PRC006", a_loop(before=AMP.format(""))),
        ("PRC006", a_loop(before="from contextlib import nullcontext\n" + AMP.format("nullcontext() if cpu else "))),
        ("PRC006", a_loop(before="torch.cuda.amp.autocast(dtype=torch.bfloat16)")),
        ("OPT052", a_loop(before=SCHEDULE.format("3 * len(loader)"), update="sched.step()")),
        ("OPT052", a_loop(before="total = 3 * len(loader)\n" + SCHEDULE.format("int(total)"), update="sched.step()")),
        ("OPT052", a_loop(before=SCHEDULE.format("3 * len(loader) // args.accum"), after="sched.step()")),
        ("CFG017", a_loop(flag="parser.add_argument('--grad_clip', type=float, default=1.0)")),
        ("HST001", a_loop(after="gn = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    log(gn.item())")),
        ("MSK056", SFT.format(IN_A_COMPREHENSION)),
        ("MSK056", SFT.format(APPENDED)),
        ("MSK056", SFT.format(WRITTEN_HERE)),
        ("MSK058", BLOCKS.format(model=LLAMA, encode=BARE, join=CHAIN)),
        ("MSK058", BLOCKS.format(model=LLAMA, encode=BARE, join="sum(batch['input_ids'], [])")),
        ("MSK058", BLOCKS.format(model="Qwen/Qwen2.5-0.5B", encode="tok(batch['text'])", join=CHAIN)),
        ("ATT004", LAYER.format(BY_HAND)),
        ("ATT004", LAYER.format(BY_EINSUM)),
        ("HST002", LAYER.format("assert torch.isfinite(x).all()\n        " + FUSED)),
        ("HST002", LAYER.format("s = float(self.scale)\n        " + FUSED)),
        ("HST002", LAYER.format("print('largest', x.max())\n        " + FUSED)),
    ],
)  # fmt: skip
def test_what_is_said(tmp_path: Path, code: str, source: str) -> None:
    found = [one for one in audited(tmp_path / "a", {"train.py": source}).findings if one.code == code]
    assert len(found) == 1
    lines = source.split("\n")
    lines[found[0].place.line - 1] += f"  # dynotune: ignore[{code}] it is meant"
    kept = audited(tmp_path / "b", {"train.py": "\n".join(lines)}).findings
    assert code not in {one.code for one in kept}


@pytest.mark.parametrize(
    ("code", "source"),
    [
        ("PRC006", a_loop(before=AMP.format(""), step=ENTERED)),
        ("PRC006", a_loop(before=f"{AMP.format('')}\nfit(model, amp)")),
        ("OPT052", a_loop(before=SCHEDULE.format("3 * len(loader) // args.accum"), update="sched.step()")),
        ("OPT052", a_loop(before=SCHEDULE.format("3 * len(loader)"), after="sched.step()")),
        ("OPT052", a_loop(before=SCHEDULE.format("args.max_steps"), update="sched.step()")),
        ("CFG017", a_loop(flag="parser.add_argument('--clip', type=float)", before="print(args.clip)")),
        ("CFG017", a_loop(flag="parser.add_argument('--clip', type=float)", before="fit(**vars(args))")),
        ("CFG017", a_loop(flag="parser.add_argument('--clip', type=float)", before="from lib import fit\nfit(args)")),
        ("HST001", a_loop(after="host = np.mean(rows)\n    log(host.item())")),
        ("MSK056", SFT.format(RENDERED)),
        ("MSK056", SFT.format(WITH_AN_ANSWER)),
        ("MSK056", SFT.format(ALL_BUT_THE_LAST)),
        ("MSK056", SFT.format(MORE_TURNS)),
        ("MSK058", BLOCKS.format(model=LLAMA, encode="tok(batch['text'])", join=CHAIN)),
        ("MSK058", BLOCKS.format(model=LLAMA, encode=WITH_ENDS, join=CHAIN)),
        ("ATT004", LAYER.format(FUSED)),
        ("ATT004", LAYER.format(CAPPED)),
        ("ATT004", LAYER.format(KEPT)),
        ("HST002", LAYER.format("s = float(self.width)\n        " + FUSED)),
        ("HST002", LAYER.format("assert x.shape[-1] == 8\n        print('shape', x.shape)\n        " + FUSED)),
    ],
)  # fmt: skip
def test_what_is_not_said(tmp_path: Path, code: str, source: str) -> None:
    assert code not in {one.code for one in audited(tmp_path, {"train.py": source}).findings}


@pytest.mark.parametrize(
    ("version", "arguments", "said"),
    [("4.46.3", "", True), ("5.0.0", "", False), ("4.46.3", ", torch_dtype=torch.bfloat16", False)],
)
def test_a_second_model_in_float32(tmp_path: Path, version: str, arguments: str, said: bool) -> None:
    files = {"dpo.py": DPO.format(arguments), "requirements.txt": f"transformers=={version}\n"}
    assert any("twice the bytes" in one.message for one in audited(tmp_path, files).findings) is said


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("total batch: 2 per GPU x 8 steps x 8 GPUs = 128", True),
        ("128 = 2 x 8 x 8", True),
        ("total batch: 2 x 8 = 16", False),
        ("eight steps, shared among the processes", False),
    ],
)
def test_divided_though_a_comment_counts_the_processes(tmp_path: Path, comment: str, said: bool) -> None:
    found = audited(tmp_path, {"train.py": DIVIDES, "run.sh": COUNTS.format(comment)}).findings
    assert any(one.code == "DST052" and one.place.file == "train.py" for one in found) is said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Tested on Windows 11 with WSL2 and an RTX 4090.", True),
        ("Tested on native Linux, and under WSL2 with an RTX 4090.", False),
        ("WSL2 with an RTX 4090 should work.", False),
    ],
)
def test_a_machine_that_was_tested_on(tmp_path: Path, text: str, said: bool) -> None:
    config = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\ndataloader_num_workers: 8\n"
    found = audited(tmp_path, {"sft.yaml": config, "README.md": f"{text}\n\n    trl sft --config sft.yaml\n"}).findings
    assert ("HST051" in {one.code for one in found}) is said


@pytest.mark.parametrize(
    ("model", "tracker", "said"),
    [("Qwen/Qwen2.5-1.5B", "wandb", True), ("Qwen/Qwen2.5-1.5B", "none", False), ("Qwen/Qwen2.5-7B", "wandb", False)],
)
def test_a_tracker_at_each_step(tmp_path: Path, model: str, tracker: str, said: bool) -> None:
    config = f"model_name_or_path: {model}\ndataset_name: d.jsonl\nlogging_steps: 1\nreport_to: {tracker}\n"
    found = audited(tmp_path, {"sft.yaml": config, "run.sh": "trl sft --config sft.yaml\n"}).findings
    assert ("HST052" in {one.code for one in found}) is said
