"""Promise: what collators, data sets and preparing scripts do to rows is read in the ways in which people write it."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

COLLATE = """import torch
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


@dataclass
class Pad:
    pad: int
    longest: int

    def __call__(self, rows):
%s
        return {"input_ids": ids, "attention_mask": ids != self.pad}


model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
args = TrainingArguments(output_dir="o", bf16=True, group_by_length=True)
Trainer(model=model, args=args, train_dataset=rows, data_collator=Pad(0, 2048)).train()
"""
BY_A_NAME = "        width = self.longest\n        ids = torch.full((len(rows), width), self.pad)"
LONGEST = BY_A_NAME.replace("self.longest", "min(self.longest, max(len(one) for one in rows))")
TO_THE_ROWS = "        width = len(rows[0])\n        ids = torch.full((len(rows), width), self.pad)"

RENDERS = """import json
from datasets import Dataset
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("meta-llama/Llama-3.2-1B-Instruct")


def main(path, out):
%s


main("a.jsonl", "prepared")
"""
APPENDS = (
    "    texts = []\n    for line in open(path):\n"
    '        texts.append(tok.apply_chat_template(json.loads(line)["messages"], tokenize=False))\n'
    '    Dataset.from_dict({"text": texts}).save_to_disk(out)'
)
LISTS = (
    '    rows = [tok.apply_chat_template(json.loads(line)["messages"], tokenize=False) for line in open(path)]\n'
    '    Dataset.from_dict({"text": rows}).to_parquet(out)'
)
DUMPS = (
    "    with open(out, 'w') as f:\n        for line in open(path):\n"
    '            text = tok.apply_chat_template(json.loads(line)["messages"], tokenize=False)\n'
    '            f.write(json.dumps({"text": text}))'
)
IDS = APPENDS.replace("tokenize=False", "tokenize=True")
READS = """from datasets import load_from_disk
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

data = load_from_disk("prepared")
tok = AutoTokenizer.from_pretrained("meta-llama/Llama-3.2-1B-Instruct"%s)
args = SFTConfig(output_dir="o")
SFTTrainer(model="meta-llama/Llama-3.2-1B-Instruct", args=args, train_dataset=data, processing_class=tok).train()
"""

INIT = '''import torch
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    """%s"""

    def __init__(self, path, tokenizer):
        self.rows = []
        for line in open(path):
            self.rows.append(tokenizer(line)["input_ids"])

    def __getitem__(self, at):
        return self.rows[at]


torch.distributed.init_process_group("nccl")
loader = DataLoader(Data("a.txt", tokenizer), batch_size=8)
for batch in loader:
    model(batch).loss.backward()
    optimizer.step()
'''
SMOKE = (
    "from datasets import load_dataset\nfrom transformers import Trainer, TrainingArguments\n"
    "rows = load_dataset('json', data_files='a.jsonl')\nrows = rows.map(encode, load_from_cache_file=False)\n"
    "Trainer(model=model, args=TrainingArguments(output_dir='o'%s), train_dataset=rows).train()\n"
)

JOINS = """import torch
from torch.utils.data import Dataset
from transformers import Trainer


class Blocks(Dataset):
    def __init__(self, files, tok, block_size):
        self.files, self.tok, self.block_size = files, tok, block_size

    def _texts(self, at):
        yield from open(self.files[at])

    def __getitem__(self, at):
        ids = []
%s
        return {"input_ids": torch.tensor(ids[: self.block_size])}


Trainer(model=model, args=args, train_dataset=Blocks(files, tok, 1024)).train()
"""
ADDS = (
    '        for text in self._texts(at):\n            ids += self.tok(text, add_special_tokens=False)["input_ids"]%s'
)
EXTENDS = (
    "        for doc in self._texts(at):\n            ids.extend(self.tok.encode(doc, add_special_tokens=False)%s)"
)
ORDINARY = "        for line in open(self.files[at]):\n            ids += self.tok.encode_ordinary(line)%s"
TURNS = (
    '        for turn in self.rows[at]["messages"]:\n'
    '            ids += self.tok(turn["text"], add_special_tokens=False)%s'
)
WITH_SPECIAL = '        for text in self._texts(at):\n            ids += self.tok(text)["input_ids"]%s'


@pytest.mark.parametrize(
    ("code", "files", "found"),
    [
        ("PAD005", {"t.py": COLLATE % BY_A_NAME}, True),
        ("PAD005", {"t.py": COLLATE % BY_A_NAME.replace("(len(rows), width)", "[len(rows), width]")}, True),
        ("PAD005", {"t.py": COLLATE % LONGEST}, False),
        ("PAD005", {"t.py": COLLATE % TO_THE_ROWS}, False),
        ("PAD004", {"t.py": COLLATE % BY_A_NAME}, True),
        ("PAD004", {"t.py": COLLATE % LONGEST}, False),
        ("MSK053", {"prepare.py": RENDERS % APPENDS, "train.py": READS % ""}, True),
        ("MSK053", {"prepare.py": RENDERS % LISTS, "train.py": READS % ""}, True),
        ("MSK053", {"prepare.py": RENDERS % DUMPS, "train.py": READS % ""}, True),
        ("MSK053", {"prepare.py": RENDERS % IDS, "train.py": READS % ""}, False),
        ("MSK053", {"prepare.py": RENDERS % APPENDS, "train.py": READS % ", add_bos_token=False"}, False),
        ("MSK053", {"prepare.py": (RENDERS % APPENDS).replace("meta-llama/Llama-3.2-1B", "Qwen/Qwen2.5-1.5B")}, False),
        ("HST006", {"t.py": INIT % "Texts, a line each.", "r.sh": "torchrun --nproc_per_node 8 t.py\n"}, True),
        ("HST006", {"t.py": INIT % "A few thousand short rows.", "r.sh": "torchrun --nproc_per_node 8 t.py\n"}, False),
        ("HST006", {"t.py": SMOKE % ""}, True),
        ("HST006", {"t.py": SMOKE % ", use_cpu=True"}, False),
        ("MSK058", {"t.py": JOINS % (ADDS % "")}, True),
        ("MSK058", {"t.py": JOINS % (EXTENDS % "")}, True),
        ("MSK058", {"t.py": JOINS % (ORDINARY % "")}, True),
        ("MSK058", {"t.py": JOINS % (ADDS % " + [self.tok.eos_token_id]")}, False),
        ("MSK058", {"t.py": JOINS % (ORDINARY % " + [self.tok.eot_token]")}, False),
        ("MSK058", {"t.py": JOINS % (TURNS % "")}, False),
        ("MSK058", {"t.py": JOINS % (WITH_SPECIAL % "")}, False),  # Llama's tokenizer puts one in front
        ("MSK058", {"t.py": (JOINS % (ADDS % "")).partition("Trainer(model")[0].replace("Trainer", "Auto")}, False),
    ],
)
def test_it_is_found_and_its_neighbour_is_not(code: str, files: dict[str, str], found: bool, tmp_path: Path) -> None:
    result = audited(tmp_path, files, select=(code,))
    assert bool(result.findings) is found, [one.message for one in result.findings]
