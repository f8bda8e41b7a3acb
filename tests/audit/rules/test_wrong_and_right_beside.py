"""Promise: what a reader of a project calls wrong is found, and the nearest thing that is right is not."""

from pathlib import Path

import pytest

from tests.audit.rules.scripts import LOOP, in_loop, said

DDP = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
torch.distributed.init_process_group("nccl")
rank = torch.distributed.get_rank()
model = DDP(model.cuda())
loader = DataLoader(rows, batch_size=4, {loader})
{before}
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
{after}
"""
SAMPLED = "sampler=DistributedSampler(rows)"
SCHEDULED = (
    "from transformers import get_linear_schedule_with_warmup\n" + LOOP + "    pass\n"
    "sched = get_linear_schedule_with_warmup(optimizer, 10, 100)\n{}\n"
)
EVALUATED = """
import torch
def evaluate(model):
    model.eval()
    {inside}
for epoch in range(3):
    {before}
    for batch in train_loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    evaluate(model)
"""
SAVED = """
import argparse
import torch
{imports}
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()
for epoch in range(args.epochs):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    {on_the_way}
torch.save(model.state_dict(), "model.pt")
"""
FOUND_IN = """
def mask(ids, labels, answer_mark):
    cut = find_last(ids, answer_mark)
    if cut > 0:
        labels[:cut] = -100
    {rest}
    return labels
def answers(rows): pass
"""
COLUMNS = """
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("mistralai/Mistral-7B-Instruct-v0.3")
def render(row):
    return {{"{column}": tok.apply_chat_template(row["chat"], tokenize=False)}}
def encode(rows):
    return tok(rows["text"]{more})
"""
GENERATES = """
import torch
from transformers import AutoModelForCausalLM
first = AutoModelForCausalLM.from_pretrained("a/b", device_map="cuda")
second = AutoModelForCausalLM.from_pretrained("a/b"{more}){behind}
second.generate(**inputs)
"""
SPEEDS = """
import time
def one(batch):
    return 20 / measure(batch)
for batch in (2, 4, 8):
    speed[batch] = one(batch)
    print(f"batch {{batch}}: {{speed[batch]:.2f}} {unit}/s")
print("fastest", max(speed))
"""
PADS = """
def encode(row, max_length):
    ids = tok(row["text"])["input_ids"][:max_length]
    room = {limit} - len(ids)
    return {{"input_ids": ids + [0] * room, "attention_mask": [1] * len(ids) + [0] * room}}
def train(): loss.backward(); optimizer.step()
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("code", "text", "found"),
    [
        ("MEM053", in_loop("total += loss"), True),
        ("MEM053", in_loop("seen.append(loss)"), True),
        ("MEM053", in_loop("total += 0.5 * loss"), True),
        ("MEM053", in_loop("total += loss.item()"), False),
        ("MEM053", in_loop("total += float(loss)"), False),
        ("MEM053", in_loop("loss = loss.detach()", "total += loss"), False),
        ("MEM053", in_loop("total = 0.0", "total += loss"), False),  # begun anew in each round
        ("MEM053", in_loop("total += batch.size"), False),
        (
            "OPT050",
            LOOP.replace(
                "    optimizer.step()\n    optimizer.zero_grad()", "    optimizer.zero_grad()\n    optimizer.step()"
            ),
            True,
        ),
        ("OPT050", in_loop("pass"), False),
        ("OPT050", LOOP.replace("    outputs =", "    optimizer.zero_grad()\n    outputs ="), False),
        ("OPT052", SCHEDULED.format("pass"), True),
        ("OPT052", SCHEDULED.format("train(model, optimizer, sched)"), False),
        ("OPT052", SCHEDULED.format("model, sched = accelerator.prepare(model, sched)"), True),
        ("OPT052", SCHEDULED.format("sched.step()"), False),
        ("OPT056", EVALUATED.format(inside="pass", before="pass"), True),
        ("OPT056", EVALUATED.format(inside="model.train()", before="pass"), False),
        ("OPT056", EVALUATED.format(inside="pass", before="model.train()"), False),
        ("OPT056", EVALUATED.replace("model.eval()", "teacher.eval()").format(inside="pass", before="pass"), False),
        ("DST057", DDP.format(loader="shuffle=True", before="", after=""), True),
        ("DST057", DDP.format(loader=SAMPLED, before="", after=""), False),
        ("DST057", DDP.format(loader="shuffle=True", before="rows = rows[rank::4]", after=""), False),
        (
            "DST057",
            DDP.replace("DDP(model.cuda())", "model.cuda()").format(loader="shuffle=True", before="", after=""),
            False,
        ),
        ("CKP002", SAVED.format(imports="", on_the_way="pass"), True),
        ("CKP002", SAVED.format(imports="", on_the_way="pass  # resume: see load_checkpoint"), False),
        ("CKP002", SAVED.replace("range(args.epochs)", "range(1)").format(imports="", on_the_way="pass"), False),
        ("CKP051", SAVED.format(imports="from safetensors.torch import load_file", on_the_way="pass"), True),
        ("CKP051", SAVED.format(imports="from safetensors.torch import save_file", on_the_way="pass"), False),
        ("CKP051", SAVED.format(imports="", on_the_way="pass"), False),
        ("MSK050", FOUND_IN.format(rest="pass"), True),
        ("MSK050", FOUND_IN.format(rest="if cut <= 0: raise ValueError(ids)"), False),
        ("MSK050", FOUND_IN.replace("find_last(ids, answer_mark)", "len(answer_mark)").format(rest="pass"), False),
        ("MSK053", COLUMNS.format(column="text", more=""), True),
        ("MSK053", COLUMNS.format(column="text", more=", add_special_tokens=False"), False),
        ("MSK053", COLUMNS.format(column="shown", more=""), False),
        ("HST004", GENERATES.format(more="", behind=""), True),
        ("HST004", GENERATES.format(more="", behind=".cuda()"), False),
        ("HST004", GENERATES.format(more="", behind="\nsecond.to('cuda')"), False),
        ("HST004", GENERATES.format(more=", device_map='auto'", behind=""), False),
        ("MSR005", SPEEDS.format(unit="it"), True),
        ("MSR005", SPEEDS.format(unit="tokens"), False),
        ("MSR005", SPEEDS.format(unit="it").replace("for batch in", "for kernel in"), False),
        ("PAD005", PADS.format(limit="max_length"), True),
        ("PAD005", PADS.format(limit="longest"), False),
    ],
)
def test_a_script(tmp_path: Path, code: str, text: str, found: bool) -> None:
    assert bool(said(code, tmp_path, text)) is found


TRAINER = """
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer
tokenizer = AutoTokenizer.from_pretrained("{model}")
model = AutoModelForCausalLM.from_pretrained("{model}")
rows = load_dataset("json", data_files="a.jsonl", split="train")
other = load_dataset("json", data_files="{file}.jsonl", split="{split}")
{more}
Trainer(model, train_dataset=rows, eval_dataset={test}).train()
"""
RIGHT = {"model": "meta-llama/Llama-2-7b-hf", "file": "b", "split": "train", "more": "", "test": "other"}


@pytest.mark.parametrize(
    ("code", "change", "found"),
    [
        ("DAT004", {}, False),
        ("DAT004", {"test": "rows"}, True),
        ("DAT004", {"test": "rows.select(range(9))"}, True),
        ("DAT004", {"file": "a", "split": "train[:5%]"}, True),
        ("DAT004", {"file": "a", "split": "test"}, False),
        ("DAT004", {"test": "rows.filter(held_out)"}, False),
    ],
)
def test_a_script_with_a_trainer(tmp_path: Path, code: str, change: dict[str, str], found: bool) -> None:
    assert bool(said(code, tmp_path, TRAINER.format(**RIGHT | change))) is found


MARKED = """
from unsloth.chat_templates import get_chat_template, train_on_responses_only
tokenizer = get_chat_template(tokenizer, chat_template={template!r})
trainer = train_on_responses_only(trainer, response_part={mark!r})
{more}
"""


@pytest.mark.parametrize(
    ("template", "mark", "more", "found"),
    [
        ("llama-3.1", "<|im_start|>assistant\n", "", True),
        ("chatml", "<|im_start|>assistant\n", "", False),
        ("qwen-2.5", "### Response:\n", "", True),
        ("qwen-2.5", "### Response:\n", "ROW = 'a ### Response:\\n b'", False),  # the script writes it itself
        ("mine", "<|im_start|>assistant\n", "", False),
    ],
)
def test_marks_of_answers(tmp_path: Path, template: str, mark: str, more: str, found: bool) -> None:
    assert bool(said("MSK055", tmp_path, MARKED.format(template=template, mark=mark, more=more))) is found
