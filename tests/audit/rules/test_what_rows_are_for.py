"""Promise: rows that are trained on whole, evaluated on, padded, cut and counted otherwise than the project says are found
in the shapes in which people write it."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


def codes(folder: Path, files: dict[str, str], code: str) -> list[str]:
    return [one.message for one in audited(folder, files).findings if one.code == code]


ENCODE = """{search}
def encode(row, tok, max_len):
    ids = tok(row["text"], truncation=True, max_length=max_len)["input_ids"]
    start = response_start(ids, [1, 2])
    {use}
    return {{"input_ids": ids, "labels": labels}}
"""
MASK = "labels = [-100] * start + ids[start:]"
LOOP = """def response_start(ids, marker):
    for i in range(len(ids)):
        if ids[i : i + 2] == marker:
            return i + 2
    return {}
"""
BY_NAME = """def response_start(ids, marker):
    start = 0
    for i in range(len(ids)):
        if ids[i : i + 2] == marker:
            start = i + 2
    return start
"""
NEXT = "def response_start(ids, m):\n    return next((i + 2 for i in range(len(ids)) if ids[i : i + 2] == m), 0)\n"
RAISES = (
    "def response_start(ids, m):\n    try:\n        return ids.index(m[0])\n    except ValueError:\n        return {}\n"
)
BRANCH = "def response_start(ids, m):\n    at = find(ids, m)\n    return 0 if at < 0 else at + 2\n"


@pytest.mark.parametrize(
    ("search", "use", "wrong"),
    [
        (LOOP.format(0), MASK, True),
        (LOOP.format(0), "labels = list(ids); labels[:start] = [-100] * start", True),
        (BY_NAME, MASK, True),
        (NEXT, MASK, True),
        (RAISES.format(0), MASK, True),
        (BRANCH, MASK, True),
        (LOOP.format("len(ids)"), MASK, False),
        (RAISES.format("len(ids)"), MASK, False),
        (LOOP.format(0), f"{MASK} if start else [-100] * len(ids)", False),
        (LOOP.format(0), f"if start == 0:\n        return None\n    {MASK}", False),
        (LOOP.format("0  # dynotune: ignore[MSK050] on purpose"), MASK, False),
    ],
)
def test_a_start_that_is_zero_where_no_answer_is(tmp_path: Path, search: str, use: str, wrong: bool) -> None:
    assert bool(codes(tmp_path, {"encode.py": ENCODE.format(search=search, use=use)}, "MSK050")) is wrong


def test_the_search_may_stand_in_another_file(tmp_path: Path) -> None:
    files = {
        "find.py": LOOP.format(0),
        "encode.py": ENCODE.format(search="from find import response_start\n", use=MASK),
    }
    (said,) = codes(tmp_path, files, "MSK050")
    assert "`response_start` does not find the answer" in said


TRL = """from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
rows = load_dataset("json", data_files="chats.jsonl", split="train")
{make}
args = SFTConfig(output_dir="out", bf16=True{more})
SFTTrainer("Qwen/Qwen2.5-0.5B", args=args, train_dataset=rows{given}).train()
"""
TEXTS = 'rows = rows.map(lambda r: {"text": tok.apply_chat_template(r["messages"], tokenize=False)})'
PAIRS = 'rows = rows.map(lambda r: {"prompt": r["q"], "completion": r["a"]})'


@pytest.mark.parametrize(
    ("make", "more", "given", "readme", "wrong"),
    [
        (TEXTS, "", "", "The loss is on the assistant's replies only, so it does not learn to ask.", True),
        (TEXTS, "", "", "* the prompts are masked\n", True),
        ("def fmt(r):\n    return r['q'] + r['a']", "", ", formatting_func=fmt", "Loss only on the answer.", True),
        ('rows = rows.select_columns(["messages"])', "", "", "Loss only on the assistant's turns.", True),
        ('rows = rows.select_columns(["messages"])', ", assistant_only_loss=True", "", "Loss only on replies.", False),
        (PAIRS, "", "", "Loss only on the answer.", False),
        (TEXTS, "", "", "Chats of a shop.", False),
        (TEXTS, "", ", data_collator=own", "Loss only on the answer.", False),
    ],
)
def test_a_loss_on_answers_that_nothing_makes(
    tmp_path: Path, make: str, more: str, given: str, readme: str, wrong: bool
) -> None:
    files = {"train.py": TRL.format(make=make, more=more, given=given), "README.md": readme}
    assert bool(codes(tmp_path, files, "MSK001")) is wrong


def test_the_claim_is_suppressed_at_the_trainer(tmp_path: Path) -> None:
    text = TRL.format(make=TEXTS, more="", given="").replace(
        ".train()", ".train()  # dynotune: ignore[MSK001] on purpose"
    )
    assert not codes(tmp_path, {"train.py": text, "README.md": "Loss only on the answer."}, "MSK001")


AXOLOTL = (
    "base_model: Qwen/Qwen2.5-0.5B\ndatasets:\n  - path: a.jsonl\n    type: alpaca\n"
    "{}sequence_len: 2048\nmicro_batch_size: 2\n"
)


@pytest.mark.parametrize(("key", "wrong"), [("train_on_inputs: true\n", True), ("train_on_inputs: false\n", False)])
def test_context_only(tmp_path: Path, key: str, wrong: bool) -> None:
    files = {
        "a.yml": AXOLOTL.format(key),
        "README.md": "The user's turns are context only: the loss covers the answers.\n",
    }
    assert bool(codes(tmp_path, files, "CFG011")) is wrong


LOAD = """from datasets import concatenate_datasets, load_dataset


def data():
    train = load_dataset("json", data_files="a.jsonl", split="{}")
    val = load_dataset("json", data_files="a.jsonl", split="{}")
    return train, val
"""
SPLIT = """import random
from torch.utils.data import DataLoader
rows = [line for line in open("a.txt")]
{}
val_loader = DataLoader(val, batch_size=8)
loader = DataLoader({}, batch_size=8, shuffle=True)
"""
AGAIN = """from datasets import concatenate_datasets, load_dataset
raw = load_dataset("json", data_files="a.jsonl", split="train")
parts = concatenate_datasets([{}]).shuffle(seed=1).train_test_split(test_size=0.1, seed=1)
train, test = parts["train"], parts["test"]
"""
EVALUATED = [
    (LOAD.format("train", "train[:5%]"), True),
    (LOAD.format("train[:95%]", "train[90%:]"), True),
    (LOAD.format("train[:9000]", "train[8000:]"), True),
    (LOAD.format("train[:95%]", "train[95%:]"), False),
    (LOAD.format("train", "test"), False),
    (SPLIT.format("val = random.sample(rows, 100)", "rows"), True),
    (SPLIT.format("val = rows[-100:]", "rows"), True),
    (SPLIT.format("val = rows[:5]", "rows"), False),
    (SPLIT.format("val = rows[-100:]\nrows = rows[:-100]", "rows"), False),
    (SPLIT.format("val = rows[-100:]\ntrain = rows[:-100]", "train"), False),
    (SPLIT.format("val, train = rows[:100], rows[100:]", "train"), False),
    (SPLIT.format("val = rows[-100:]  # dynotune: ignore[DAT004] on purpose", "rows"), False),
    (AGAIN.format("raw, raw"), True),
    (AGAIN.format("raw, other"), False),
]


@pytest.mark.parametrize(("text", "wrong"), EVALUATED)
def test_parts_that_overlap(tmp_path: Path, text: str, wrong: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": text}, "DAT004")) is wrong


@pytest.mark.parametrize(
    ("files", "wrong"),
    [
        ({"a.yml": AXOLOTL.format("test_datasets:\n  - path: a.jsonl\n    type: alpaca\n")}, True),
        ({"a.yml": AXOLOTL.format("test_datasets:\n  - path: a.jsonl\n    type: alpaca\n    split: test\n")}, False),
        ({"conf.yaml": "data:\n  train_path: a.jsonl\n  val_path: a.jsonl\nlr: 1e-4\n"}, True),
        ({"conf.yaml": "data:\n  train_path: a.jsonl\n  val_path: b.jsonl\nlr: 1e-4\n"}, False),
        ({"run.sh": "python run_clm.py --train_file a.jsonl --validation_file a.jsonl\n"}, True),
        ({"run.sh": "python run_clm.py --train_file a.jsonl --validation_file b.jsonl\n"}, False),
    ],
)
def test_one_file_for_both(tmp_path: Path, files: dict[str, str], wrong: bool) -> None:
    assert bool(codes(tmp_path, files, "DAT004")) is wrong


ROWS = """import torch


class Rows(torch.utils.data.Dataset):
    def __init__(self, path, tok):
        self.rows = [tok(line)["input_ids"] for line in open(path)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {item}


class Collator:
    def __call__(self, rows):
        n = max(map(len, rows))
        return {{"input_ids": torch.tensor([r + [{pad}] * (n - len(r)) for r in rows])}}
"""
TRAIN = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from data import Collator, Rows
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
args = TrainingArguments("out", bf16=True, dataloader_num_workers={})
Trainer(model, args, train_dataset=Rows("a.txt", tok), data_collator=Collator()).train()
"""


@pytest.mark.parametrize(
    ("workers", "item", "pad", "wrong"),
    [
        (12, "self.rows[i]", "0", True),
        (12, "torch.tensor(self.rows[i])", "0", True),
        (2, "self.rows[i]", "0", False),
        (12, "self.tok(self.rows[i])", "0", False),
        (12, "self.rows[i]", "tok.encode(' ')[0]", False),
    ],
)
def test_workers_that_only_pad(tmp_path: Path, workers: int, item: str, pad: str, wrong: bool) -> None:
    files = {"data.py": ROWS.format(item=item, pad=pad), "train.py": TRAIN.format(workers)}
    assert bool(codes(tmp_path, files, "HST051")) is wrong


LABELS = """def encode(r, tok, n):
    prompt_ids, answer = tok(r["q"])["input_ids"], tok(r["a"])["input_ids"] + [tok.eos_token_id]
    ids, labels = prompt_ids + answer, [-100] * len(prompt_ids) + answer
    pad = n - len(ids)
    return {{"input_ids": ids + [tok.pad_token_id] * pad, "labels": labels + [{}] * pad}}
"""


@pytest.mark.parametrize(("fill", "wrong"), [("tok.pad_token_id", True), ("-100", False)])
def test_padding_in_labels_beside_masked_prompts(tmp_path: Path, fill: str, wrong: bool) -> None:
    assert bool(codes(tmp_path, {"prep.py": LABELS.format(fill)}, "MSK052")) is wrong


BLOCKS = """from itertools import chain
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
ds = ds.map(lambda r: tok({}), batched=True)
def group(rows, n=1024):
    ids = list(chain.from_iterable(rows["input_ids"]))
    return {{"input_ids": [ids[i : i + n] for i in range(0, len(ids), n)]}}
Trainer(model, TrainingArguments("out", bf16=True), train_dataset=ds.map(group, batched=True)).train()
"""


@pytest.mark.parametrize(("text", "wrong"), [('r["text"]', True), ('[t + tok.eos_token for t in r["text"]]', False)])
def test_blocks_that_are_cut_at_a_step(tmp_path: Path, text: str, wrong: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": BLOCKS.format(text)}, "MSK058")) is wrong


STREAM = """import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
def pack(rows, size=2048):
    buf, lab = [], []
    for row in rows:
        ids = tok.apply_chat_template(row["messages"])
        buf += ids
        lab += ids
        while len(buf) >= size:
            yield {{"input_ids": torch.tensor([buf[:size]]), "labels": torch.tensor([lab[:size]]){}}}
            buf, lab = buf[size:], lab[size:]
for batch in pack(rows):
    loss = model(**batch).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(("more", "wrong"), [("", True), (', "position_ids": positions', False)])
def test_streams_that_are_cut_together(tmp_path: Path, more: str, wrong: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": STREAM.format(more)}, "PAD001")) is wrong
