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
        "import fire\n\n\ndef main(lr: float = 1e-5, warmup: float = 0.1):\n    run(**locals())\n\n\nfire.Fire(main)",
        f"import tyro\n{CLASS}    packing: bool = True\n\n\na = tyro.cli(Options)\nrun(pack=a.packing)",
    ],
)
def test_options_that_something_reads(tmp_path: Path, head: str) -> None:
    assert "CFG017" not in codes(tmp_path, with_options(head))
