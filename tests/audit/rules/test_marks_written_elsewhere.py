"""Promise: a mark that rows never have is found wherever mark and rows are written; one that they have is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
{head}
tok = AutoTokenizer.from_pretrained("lmsys/vicuna-7b-v1.5")


def encode(text):
    ids = tok(text).input_ids
    cut = text.find({mark})
    n = len(tok(text[:cut]).input_ids) if cut >= 0 else len(ids)
    return {{"input_ids": ids, "labels": [-100] * n + ids[n:]}}


Trainer(AutoModelForCausalLM.from_pretrained("lmsys/vicuna-7b-v1.5"), TrainingArguments("out")).train()
"""
PREP = """import json

for row in rows:
    text = f"USER: {row['q']} ASSISTANT: {row['a']}</s>"
    out.write(json.dumps({"text": text}))
"""
HEADS = """def render(row):
    return f"### Question:\\n{row['q']}\\n\\n### Answer:\\n{row['a']}"
"""
SFT = """from dataclasses import dataclass
from transformers import AutoTokenizer, HfArgumentParser
from trl import DataCollatorForCompletionOnlyLM, SFTConfig, SFTTrainer
from rendering import render

@dataclass
class Job:
    marker: str = "### {word}:\\n"

def main():
    job, args = HfArgumentParser((Job, SFTConfig)).parse_args_into_dataclasses()
    tok = AutoTokenizer.from_pretrained("EleutherAI/pythia-1.4b")
    rows = load_dataset("json", data_files="rows.jsonl").map(lambda row: {{"text": render(row)}})
    SFTTrainer("EleutherAI/pythia-1.4b", args=args, train_dataset=rows,
               data_collator=DataCollatorForCompletionOnlyLM(job.marker, tokenizer=tok)).train()

main()
"""
GEMMA = """import sys
import yaml
from transformers import AutoTokenizer
from trl import DataCollatorForCompletionOnlyLM

cfg = yaml.safe_load(open(sys.argv[1]))
tok = AutoTokenizer.from_pretrained(cfg["model"])
collator = DataCollatorForCompletionOnlyLM(response_template=cfg["response_template"], tokenizer=tok)
rows = rows.map(lambda row: tok.apply_chat_template(row["messages"], return_dict=True), num_proc=cfg["procs"])
"""
YAML = 'model: {model}\nresponse_template: "{mark}"\nprocs: 4\n'
FILTERED = """import torch
from transformers import AutoTokenizer

REPLY = "{mark}"


tok = AutoTokenizer.from_pretrained("google/gemma-2-2b-it")


def read(rows):
    for text in (tok.apply_chat_template(row["turns"], tokenize=False) for row in rows):
        head, reply = text.rsplit(REPLY, 1)
        p, c = tok(head).input_ids, tok(reply).input_ids
        yield p + c, [-100] * len(p) + c
"""


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ({"train.py": TRAIN.format(head='SEP = "Assistant:"', mark="SEP"), "prep.py": PREP}, ("train.py", 2)),
        ({"train.py": TRAIN.format(head="", mark='"Assistant:"'), "prep.py": PREP}, ("train.py", 8)),
        ({"train.py": TRAIN.format(head="", mark='"### Response:"'), "prep.py": PREP + HEADS}, ("train.py", 8)),
        ({"train.py": SFT.format(word="Response"), "rendering.py": HEADS}, ("train.py", 8)),
        (
            {
                "train.py": GEMMA,
                "c.yaml": YAML.format(model="google/gemma-2-9b-it", mark="<start_of_turn>assistant\\n"),
            },
            ("c.yaml", 2),
        ),
        ({"train.py": FILTERED.format(mark="<|im_start|>assistant\\n")}, ("train.py", 4)),
    ],
)
def test_a_mark_that_no_row_has(tmp_path: Path, files: dict[str, str], line: tuple[str, int]) -> None:
    (finding,) = audited(tmp_path, files, select=("MSK055",)).findings
    assert "never comes" in finding.message
    assert line in [(place.file, place.line) for place in (finding.place, *finding.also)]


@pytest.mark.parametrize(
    "files",
    [
        {"train.py": TRAIN.format(head='SEP = "ASSISTANT:"', mark="SEP"), "prep.py": PREP},
        {"train.py": TRAIN.format(head='SEP = "Assistant:"', mark="SEP")},  # who makes the rows, is not told
        {
            "train.py": TRAIN.format(head='SEP = "Assistant:"', mark="SEP"),
            "prep.py": "from train import SEP\n" + PREP + 'text = f"User: {q} {SEP} {a}"\n',
        },
        {"train.py": TRAIN.format(head="", mark='"### Answer:"'), "prep.py": PREP + HEADS},
        {"train.py": TRAIN.format(head="", mark='"### Response:"'), "chat.py": HEADS},  # no part of the training
        {"train.py": SFT.format(word="Answer"), "rendering.py": HEADS},
        {"train.py": GEMMA, "c.yaml": YAML.format(model="google/gemma-2-9b-it", mark="<start_of_turn>model\\n")},
        {
            "train.py": GEMMA,
            "c.yaml": YAML.format(model="Qwen/Qwen2.5-7B-Instruct", mark="<|im_start|>assistant\\n"),
            "d.yaml": YAML.format(model="google/gemma-2-9b-it", mark="<start_of_turn>assistant\\n"),
        },  # which of them is taken, is not told
        {"train.py": FILTERED.format(mark="<start_of_turn>model\\n")},
    ],
)
def test_a_mark_that_rows_have_or_may_have(tmp_path: Path, files: dict[str, str]) -> None:
    assert not audited(tmp_path, files, select=("MSK055",)).findings
