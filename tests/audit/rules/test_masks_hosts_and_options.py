"""Masks that are left out, ends that are masked, models that stay on the host, options that nothing reads: the shapes that
people write them in, and near misses."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


def codes(folder: Path, files: dict[str, str]) -> list[str]:
    return [one.code for one in audited(folder, files).findings]


def encoding(body: str) -> dict[str, str]:
    return {
        "data.py": f"""ASSISTANT = "<|assistant|>"


def encode(row, tokenizer, max_length, marker):
    ids = tokenizer(row["text"], truncation=True, max_length=max_length)["input_ids"]
    begin = find(ids, tokenizer(ASSISTANT)["input_ids"])
{body}
    return {{"input_ids": ids, "labels": labels}}
"""
    }


LABEL = "    labels = [-100] * len(ids)\n    for a, b in spans(ids):\n        labels[a:b] = ids[a:b]\n"


@pytest.mark.parametrize(
    "body",
    [
        "    labels = [-100] * len(ids)\n    if begin == -1:\n        labels = list(ids)\n    while begin != -1:\n"
        "        labels[begin] = ids[begin]\n        begin = find(ids, begin + 1)",
        f"{LABEL}    if all(x == -100 for x in labels):\n        labels = list(ids)",
        f"{LABEL}    if not any(x != -100 for x in labels):\n        labels = ids[:]",
        "    labels = torch.full((len(ids),), -100)\n    labels[begin:] = ids[begin:]\n    if (labels == -100).all():\n"
        "        labels = torch.tensor(ids).clone()",
        "    labels = [-100] * len(ids)\n    if begin is None:\n        labels[:] = ids\n"
        "    else:\n        labels[begin:] = ids[begin:]",
        "    labels = list(ids) if begin is None else [-100] * begin + ids[begin:]",
        "    labels = [-100] * begin + ids[begin:] if begin >= 0 else ids.copy()",
        "    begin = max(find(ids, marker), 0)\n    labels = [-100] * begin + ids[begin:]",
        "    at = 0 if begin < 0 else len(tokenizer(row['text'][:begin])['input_ids'])\n    labels = list(ids)\n"
        "    labels[:at] = [-100] * at",
    ],
)
def test_rows_without_an_answer_that_keep_all_their_labels(tmp_path: Path, body: str) -> None:
    assert codes(tmp_path, encoding(body)) == ["MSK050"]


@pytest.mark.parametrize(
    "body",
    [
        f"{LABEL}    if all(x == -100 for x in labels):\n        raise ValueError(row)",
        f"{LABEL}    if all(x == -100 for x in labels):\n        return None",
        "    labels = [-100] * len(ids)\n    if row['kind'] == 'plain':\n        labels = list(ids)\n"
        "    for a, b in spans(ids):\n        labels[a:b] = ids[a:b]",
        "    if marker is None:\n        labels = list(ids)\n    else:\n        labels = [-100] * begin + ids[begin:]",
    ],
)
def test_rows_that_are_left_out_or_meant_whole(tmp_path: Path, body: str) -> None:
    assert codes(tmp_path, encoding(body)) == []


def collating(body: str, pad: str = "tok.pad_token = tok.eos_token") -> dict[str, str]:
    return {
        "train.py": f"""from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
{pad}


def collate(rows):
    batch = tok([row["p"] + row["a"] + tok.eos_token for row in rows], padding=True, return_tensors="pt")
    ids = batch["input_ids"]
{body}
    return ids, labels
"""
    }


@pytest.mark.parametrize(
    "body",
    [
        "    mask = ids.ne(tok.pad_token_id)\n    labels = ids.masked_fill(~mask, -100)",
        "    mask = (ids != tok.pad_token_id).long()\n    labels = ids.clone()\n    labels[mask == 0] = -100",
        "    gone = ids == tok.pad_token_id\n    labels = ids.clone()\n    labels[gone] = -100",
        "    mask = ids != tok.pad_token_id\n    labels = ids.clone()\n    labels[~mask] = -100",
        "    mask = ids != tok.pad_token_id\n    labels = torch.where(mask, ids, -100)",
    ],
)
def test_masks_made_of_the_token_before_they_are_used(tmp_path: Path, body: str) -> None:
    assert codes(tmp_path, collating(body)) == ["MSK003"]


@pytest.mark.parametrize(
    ("body", "pad"),
    [
        ("    labels = ids.masked_fill(batch['attention_mask'] == 0, -100)", "tok.pad_token = tok.eos_token"),
        ("    mask = ids.ne(tok.pad_token_id)\n    labels = ids.masked_fill(~mask, -100)", "tok.pad_token = '<|pad|>'"),
        (
            "    mask = ids.ne(tok.pad_token_id)\n    labels = ids.masked_fill(~mask, -100)\n"
            "    labels[:, -1] = tok.eos_token_id",
            "tok.pad_token = tok.eos_token",
        ),
    ],
)
def test_ends_that_stay(tmp_path: Path, body: str, pad: str) -> None:
    assert codes(tmp_path, collating(body, pad)) == []


TRAIN = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
Trainer(model=model, args=TrainingArguments("out", bf16=True), train_dataset=rows).train()
"""
LOAD = "tok = AutoTokenizer.from_pretrained(sys.argv[1])\nmodel = AutoModelForCausalLM.from_pretrained(sys.argv[1])\n"
ONE = 'enc = tok(text, return_tensors="pt")\nprint(tok.decode(model.generate(**enc)[0]))\n'
ROWS = "for text in open(sys.argv[2]):\n" + "".join(f"    {line}\n" for line in ONE.split("\n") if line)
FUNCTION = f"def answer(text):\n{''.join(f'    {line}{chr(10)}' for line in ONE.split(chr(10)) if line)}\n"


def predicting(body: str, train: str = TRAIN, head: str = "") -> dict[str, str]:
    return {
        "train.py": train,
        "predict.py": f"import sys\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n{head}\n{body}",
    }


@pytest.mark.parametrize(
    "body",
    [
        LOAD + ROWS,
        LOAD + FUNCTION + "for line in open(sys.argv[2]):\n    answer(line)\n",
        LOAD + FUNCTION + "print([answer(line) for line in open(sys.argv[2])])\n",
        LOAD + FUNCTION + "rows.map(answer)\n",
    ],
)
def test_a_model_that_scores_rows_where_it_was_loaded(tmp_path: Path, body: str) -> None:
    assert "HST004" in codes(tmp_path, predicting(body))


@pytest.mark.parametrize(
    "files",
    [
        predicting(LOAD + "model.cuda()\n" + ROWS),
        predicting(LOAD.replace("(sys.argv[1])\n", "(sys.argv[1], device_map='auto')\n") + ROWS),
        predicting(LOAD + "text = 'hello'\n" + ONE),
        predicting(LOAD + "while True:\n    text = input()\n" + ROWS),
        predicting(LOAD + ROWS, head="import torch\n\ntorch.set_num_threads(8)"),
        predicting(LOAD + ROWS, train="print('no training here')\n"),
        predicting(LOAD + ROWS) | {"README.md": "# Model\n\nScoring runs on the CPU of the web server.\n"},
    ],
)
def test_a_model_that_answers_on_the_host_on_purpose(tmp_path: Path, files: dict[str, str]) -> None:
    assert "HST004" not in codes(tmp_path, files)


def with_options(head: str, use: str = "a.lr") -> dict[str, str]:
    return {
        "train.py": f"""from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
{head}
args = TrainingArguments("out", bf16=True, learning_rate={use})
Trainer(model=model, args=args, train_dataset=rows).train()
"""
    }


ARGPARSE = "import argparse\n\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float, default=1e-5)\n"
CLASS = "from dataclasses import dataclass\n\n\n@dataclass\nclass Options:\n    lr: float = 1e-5\n"


@pytest.mark.parametrize(
    "head",
    [
        f"{ARGPARSE}p.add_argument('--warmup_steps', type=int, default=100)\na = p.parse_args()",
        "import click\n\n\n@click.command()\n@click.option('--lr', default=1e-5)\n@click.option('--accum', default=8)\n"
        "def main(lr, accum):\n    run(lr)\n",
        "import fire\n\n\ndef main(lr: float = 1e-5, warmup: float = 0.1):\n    run(lr)\n\n\nfire.Fire(main)",
        "import typer\n\n\ndef main(lr: float = 1e-5, packing: bool = True):\n    print(packing)\n"
        "    run(lr)\n\n\ntyper.run(main)",
        f"from transformers import HfArgumentParser\n{CLASS}    packing: bool = True\n\n\n"
        "(a,) = HfArgumentParser(Options).parse_args_into_dataclasses()",
        f"import tyro\n{CLASS}    packing: bool = True\n\n\na = tyro.cli(Options)",
    ],
)
def test_options_that_nothing_reads(tmp_path: Path, head: str) -> None:
    assert "CFG017" in codes(tmp_path, with_options(head))


@pytest.mark.parametrize(
    "head",
    [
        f"{ARGPARSE}a = p.parse_args()",
        f"{ARGPARSE}p.add_argument('--warmup_steps', type=int, default=100)\na = p.parse_args()\n"
        "print(vars(a))\nrun(**vars(a))",
        "import click\n\n\n@click.command()\n@click.option('--lr', default=1e-5)\n"
        "@click.option('--old', default=8, help='unused')\n"
        "def main(lr, old):  # old is deprecated\n    run(lr)\n",
        "import typer\n\n\ndef main(lr: float = 1e-5, about: bool = typer.Option(False, callback=show)):\n    run(lr)\n\n\n"
        "typer.run(main)",
        "import fire\n\n\ndef main(lr: float = 1e-5, warmup: float = 0.1):\n    run(**locals())\n\n\nfire.Fire(main)",
        f"import tyro\n{CLASS}    packing: bool = True\n\n\na = tyro.cli(Options)\nrun(pack=a.packing)",
    ],
)
def test_options_that_something_reads(tmp_path: Path, head: str) -> None:
    assert "CFG017" not in codes(tmp_path, with_options(head))


LOOP = """import os
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from data import collate, rows

{top}

def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(1)
    loader = DataLoader(rows, batch_size=16, sampler=DistributedSampler(rows), collate_fn=collate, num_workers=2)
    model = torch.nn.parallel.DistributedDataParallel(build().cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    start, tokens = time.time(), 0
    for step, batch in enumerate(loader):
        loss = model(batch["input_ids"].cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
{inside}


main()
"""
COLLATOR = "from transformers import DataCollatorWithPadding\n\ncollate = DataCollatorWithPadding(tok)\n"


def looping(top: str = "", inside: str = "", data: str = COLLATOR) -> dict[str, str]:
    train = LOOP.format(top=top, inside="".join(f"        {line}\n" for line in inside.split("\n")))
    return {"train.py": train, "data.py": data, "run.sh": "torchrun --nproc_per_node 4 train.py\n"}


ASKED = "dist.get_world_size() if dist.is_initialized() else 1"


@pytest.mark.parametrize(
    "top",
    [
        f"ACCUM = 64 // ({ASKED})",
        f"def world():\n    return {ASKED}\n\n\nACCUM = 64 // world()",
        "def world():\n    if dist.is_initialized():\n        return dist.get_world_size()\n    return 1\n\n\n"
        "ACCUM = 64 // world()",
        "def world():\n    if not dist.is_initialized():\n        return 1\n    return dist.get_world_size()\n\n\n"
        "ACCUM = 64 // world()",
    ],
)
def test_ranks_that_are_counted_when_the_file_is_loaded(tmp_path: Path, top: str) -> None:
    found = [one for one in audited(tmp_path, looping(top)).findings if one.code == "DST051"]
    assert len(found) == 1
    assert "always `1`" in found[0].message


@pytest.mark.parametrize(
    "top", [f"world = lambda: {ASKED}", f"def world():\n    return {ASKED}\n\n\ndef accum():\n    return 64 // world()"]
)
def test_ranks_that_are_counted_later(tmp_path: Path, top: str) -> None:
    assert "DST051" not in codes(tmp_path, looping(top))


@pytest.mark.parametrize(
    "inside",
    [
        "if dist.get_rank() == 0:\n    print(loss.item())",
        "if int(os.environ['RANK']) == 0:\n    print(loss.item())",
        "if rank == 0 and args.verbose:\n    print(loss.item())",
        "mean = loss.detach().clone()\ndist.all_reduce(mean)\nprint(mean.item())",
    ],
)
def test_one_rank_that_reads_in_each_step(tmp_path: Path, inside: str) -> None:
    assert "HST001" in codes(tmp_path, looping(inside=inside))


@pytest.mark.parametrize(
    "inside",
    [
        "if dist.get_rank() == 0 and step % 50 == 0:\n    print(loss.item())",
        "if dist.get_rank() == 0 and due(step):\n    print(loss.item())",
    ],
)
def test_one_rank_that_reads_now_and_then(tmp_path: Path, inside: str) -> None:
    assert "HST001" not in codes(tmp_path, looping(inside=inside))


SHOW = "if step % 50 == 0:\n    print(tokens / (time.time() - start), 'tokens/s')"
BY_HAND = """class Rows:
    def __getitem__(self, i):
        ids = self.rows[i]
        {body}
        return {{"input_ids": x, "labels": y}}


rows, collate = Rows(), None
"""


@pytest.mark.parametrize(
    "count",
    [
        "b, t = batch['input_ids'].shape\ntokens += b * t",
        "tokens += torch.numel(batch['input_ids'])",
        "tokens += batch['input_ids'].numel()",
    ],
)
def test_speeds_by_the_sides_of_a_padded_batch(tmp_path: Path, count: str) -> None:
    assert "MSR001" in codes(tmp_path, looping(inside=f"{count}\n{SHOW}"))


FILLED = (
    "x = torch.zeros(self.block_size, dtype=torch.long)\n        y = torch.full((self.block_size,), -100)\n"
    "        n = len(ids)\n        x[:n] = ids\n        y[:n] = ids"
)


@pytest.mark.parametrize(
    "body",
    [
        FILLED,
        "y = list(ids)\n        while len(ids) < self.max_len:\n            ids.append(self.pad_id)\n"
        "            y.append(-100)\n        x = ids",
    ],
)
def test_rows_that_are_filled_up_by_hand(tmp_path: Path, body: str) -> None:
    assert "PAD005" in codes(tmp_path, looping(data=BY_HAND.format(body=body)))


def test_pieces_of_a_stream_are_not_padded(tmp_path: Path) -> None:
    body = FILLED.replace(
        "n = len(ids)", "ids = self.stream[i * self.block_size:][: self.block_size]\n        n = len(ids)"
    )
    assert "PAD005" not in codes(tmp_path, looping(data=BY_HAND.format(body=body)))


ACCELERATE = """import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import get_scheduler

set_seed(1)
accelerator = Accelerator(mixed_precision="{precision}", gradient_accumulation_steps=4)
sched = get_scheduler("cosine", optimizer, num_warmup_steps=10, num_training_steps={steps})
model, optimizer, loader, sched = accelerator.prepare(model, optimizer, loader, sched)
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)
        {clip}
        optimizer.step()
        sched.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("precision", "steps", "clip", "said"),
    [
        ("bf16", "3 * len(loader)", "pass", ["OPT052"]),
        ("bf16", "3 * len(loader) // 4", "pass", []),
        ("fp16", "updates", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", ["OPT053"]),
        ("bf16", "updates", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", []),
        ("fp16", "updates", "accelerator.clip_grad_norm_(model.parameters(), 1.0)", []),
    ],
)
def test_schedules_and_limits_under_accelerate(
    tmp_path: Path, precision: str, steps: str, clip: str, said: list[str]
) -> None:
    found = codes(tmp_path, {"train.py": ACCELERATE.format(precision=precision, steps=steps, clip=clip)})
    assert [one for one in found if one in ("OPT052", "OPT053")] == said


UNSLOTH = """from unsloth import FastLanguageModel
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

model, tok = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B", max_seq_length=2048, load_in_4bit=True)
{before}
model = FastLanguageModel.get_peft_model(model, r=16, lora_alpha=16, random_state=1)
{behind}


def render(rows):
    return {{"text": [f"Q: {{q}} A: {{a}}"{end} for q, a in zip(rows["q"], rows["a"])]}}


args = SFTConfig(output_dir="out", dataset_text_field="text", max_steps=60, warmup_ratio=0.1)
SFTTrainer(model=model, tokenizer=tok, train_dataset=rows.map(render, batched=True), args=args).train()
"""
SPLIT = 'rows = load_dataset("a/b", split="train").train_test_split(test_size=0.1)["train"]'


@pytest.mark.parametrize(
    ("before", "behind", "end", "said"),
    [
        ("", "", "", ["MSK056"]),
        ("", "", " + tok.eos_token", []),
        (SPLIT, "", " + tok.eos_token", ["MSR003"]),
        ("", SPLIT, " + tok.eos_token", []),  # `get_peft_model` has seeded numpy
    ],
)
def test_rows_under_unsloth(tmp_path: Path, before: str, behind: str, end: str, said: list[str]) -> None:
    found = codes(tmp_path, {"train.py": UNSLOTH.format(before=before, behind=behind, end=end)})
    assert [one for one in found if one in ("MSK056", "MSR003", "CFG002")] == said


BEGINS = """from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("meta-llama/Llama-3.2-1B")
P = "<|begin_of_text|>Q: {} A: {}"


def encode(row):
    text = %s
    return tok(text, truncation=True, max_length=512%s)
"""


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ('tok.bos_token + "Q: " + row["q"]', "", ["MSK053"]),
        ('f"{tok.bos_token}Q: {row[0]}"', "", ["MSK053"]),
        ('P.format(row["q"], row["a"])', "", ["MSK053"]),
        ('tok.bos_token + "Q: " + row["q"]', ", add_special_tokens=False", []),
        ('"Q: " + row["q"]', "", []),
    ],
)
def test_beginnings_by_hand(tmp_path: Path, text: str, more: str, said: list[str]) -> None:
    assert codes(tmp_path, {"data.py": BEGINS % (text, more)}) == said


def comment(text: str, given: str) -> dict[str, str]:
    filler = "".join(f"x{number} = {number}\n" for number in range(14))
    return {
        "train.py": f"""from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
{filler}
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
# {text}
args = TrainingArguments(
    output_dir="out",
    bf16=True,
    {given}
)
Trainer(model=model, args=args, train_dataset=rows).train()
"""
    }


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        ("with Unsloth's offloaded gradient checkpointing, so that it fits", "gradient_checkpointing=False,", True),
        ("with Unsloth's offloaded gradient checkpointing, so that it fits", "gradient_checkpointing=True,", False),
        ("without gradient checkpointing, which is faster", "gradient_checkpointing=False,", False),
        ("train for 3 epochs", "num_train_epochs=1,", True),
    ],
)
def test_a_comment_above_the_call_that_it_speaks_of(tmp_path: Path, text: str, given: str, said: bool) -> None:
    assert ("CFG011" in codes(tmp_path, comment(text, given))) is said


def message(text: str, use: str = "") -> dict[str, str]:
    return {
        "train.py": f"""from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

try:
    import flash_attn
except ImportError:
    print("{text}")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"{use})
Trainer(model=model, args=TrainingArguments("out", bf16=True), train_dataset=rows).train()
"""
    }


@pytest.mark.parametrize(
    ("text", "use", "said"),
    [
        ("flash-attn not found, training is slow. Run: pip install flash-attn", "", True),
        ("flash-attn not found. Run: pip install flash-attn", "", False),
        ("flash-attn not found, training is slow. Run: pip install flash-attn", ", attn_implementation=KIND", False),
    ],
)
def test_a_message_that_tells_to_install_for_nothing(tmp_path: Path, text: str, use: str, said: bool) -> None:
    files = message(text, use)
    files["train.py"] = files["train.py"].replace("KIND", "'flash_attention_2'")
    assert ("CFG011" in codes(tmp_path, files)) is said


HANDED = """import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")


def encode(rows):
    return tok(rows["text"], truncation=True)


rows = load_dataset("json", data_files="a.jsonl", split="train").{how}
optimizers = (torch.optim.AdamW(model.parameters(), lr=1e-5{fused}), None)
Trainer(model=model, args=TrainingArguments("out", bf16=True), train_dataset=rows, optimizers={given}).train()
"""


@pytest.mark.parametrize(
    ("how", "fused", "said"),
    [
        ("with_transform(encode)", ", fused=True", ["HST005"]),
        ("map(encode)", ", fused=True", []),
        ("map(encode)", "", ["OPT001"]),
    ],
)
def test_what_is_handed_to_a_trainer(tmp_path: Path, how: str, fused: str, said: list[str]) -> None:
    given = f"(torch.optim.AdamW(model.parameters(), lr=1e-5{fused}), None)"
    text = HANDED.format(how=how, fused=", fused=True", given=given)
    assert [one for one in codes(tmp_path, {"train.py": text}) if one in ("HST005", "OPT001")] == said


@pytest.mark.parametrize(
    ("readme", "said"),
    [
        ("I develop on Windows 11 with WSL2 (RTX 3060 12 GB); all was run there.", True),
        ("Everything was trained under WSL2 on my desktop.", True),
        ("Works on Linux; on Windows use WSL2.", False),
        ("We also support WSL2.", False),
    ],
)
def test_wsl_that_the_project_runs_on(tmp_path: Path, readme: str, said: bool) -> None:
    train = HANDED.format(how="map(encode)", fused="", given="(None, None)")
    files = {"train.py": train.replace("bf16=True", "bf16=True, dataloader_num_workers=8"), "README.md": readme}
    assert ("HST051" in codes(tmp_path, files)) is said


SAVED = """import fire
import torch
from transformers import AutoModelForCausalLM


def save(model, folder):
    model.save_pretrained(folder)


def main(folder: str, epochs: int = 3):
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for epoch in range(epochs):
        for batch in loader:
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
{each}
    save(model, folder)


fire.Fire(main)
"""


@pytest.mark.parametrize(
    ("each", "said"),
    [("", True), ('        torch.save([model.state_dict(), optimizer.state_dict()], "last.pt")', False)],
)
def test_a_program_of_fire_that_saves_at_its_end_alone(tmp_path: Path, each: str, said: bool) -> None:
    found = audited(tmp_path, {"train.py": SAVED.format(each=each)}, select=("CKP002",)).findings
    assert ["Nothing is saved before all" in one.message for one in found] == [said]


def test_a_collator_of_another_file_without_workers(tmp_path: Path) -> None:
    data = "from transformers import AutoTokenizer\n\ntok = AutoTokenizer.from_pretrained('gpt2')\n"
    data += "rows = open('a').readlines()\n\n\n"
    data += "def collate(rows):\n    return tok(rows, padding=True, return_tensors='pt')\n"
    files = looping(data=data)
    assert "HST005" not in codes(tmp_path, files)
    files["train.py"] = files["train.py"].replace("num_workers=2", "num_workers=0")
    assert "HST005" in codes(tmp_path, files)


OWN = """from torch.utils.data import DataLoader
from {whence} import Trainer

loader = DataLoader(rows, batch_size=8, shuffle=True)
Trainer(model, loader).train()
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(("whence", "said"), [("trainer", True), ("transformers", False)])
def test_a_trainer_of_ones_own_seeds_nothing(tmp_path: Path, whence: str, said: bool) -> None:
    files = {"train.py": OWN.format(whence=whence), "trainer.py": "class Trainer:\n    pass\n"}
    assert ("MSR003" in codes(tmp_path, files)) is said
