"""Promise: a second beginning is found however the text is put together, and in front of answers, and nowhere else."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

HEAD = """from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("mistralai/Mistral-7B-v0.1")
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1")
"""
TRAINS = "SFTTrainer(model, args=SFTConfig('o'%s), train_dataset=rows, processing_class=tokenizer%s).train()\n"
MAPS = HEAD + "%s\nrows = load_dataset('json', data_files='a.json', split='train').map(%s)\n" + TRAINS % ("", "")
BY_PARTS = """def prompt(q, a):
    text = "<s>[INST] "
    text += q + " [/INST] "
    return text + a
def encode(batch):
    texts = [prompt(q, a) for q, a in zip(batch["q"], batch["a"])]
    return tokenizer(texts%s)
"""
BY_TABLE = 'T = {"a": "%s{q} ", "b": "<s>{q} {i} "}\nto = lambda r: {"text": T["a"].format(**r)}\n'
BY_CLASS = 'class P:\n    head = "%s[INST] "\n    def to(self, r):\n        return {"text": self.head + r["q"]}\n'
BY_JOIN = 'def to(r):\n    parts = ["%s", r["q"], r["a"]]\n    return {"text": "".join(parts)}\n'
BY_FORMAT = HEAD + "def to(r):\n    return f\"%s{r['q']} {r['a']}\"\n" + TRAINS % ("", ", formatting_func=to")
COMPLETIONS = 'def to(r):\n    return {"prompt": "%s" + r["q"], "completion": r["a"]}\n'


def codes(folder: Path, text: str, code: str = "MSK053") -> list[str]:
    return [one.message for one in audited(folder, {"train.py": text}).findings if one.code == code]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (MAPS % (BY_PARTS % "", "encode"), True),
        (MAPS % (BY_PARTS % ", add_special_tokens=False", "encode"), False),
        (MAPS % (BY_TABLE % "<s>", "to"), True),
        (MAPS % (BY_TABLE % "", "to"), False),
        (MAPS % (BY_CLASS % "<s>", "P().to"), True),
        (MAPS % (BY_CLASS % "", "P().to"), False),
        (MAPS % (BY_JOIN % "<s>", "to"), True),
        (MAPS % (BY_JOIN % "[INST] ", "to"), False),
        (BY_FORMAT % "<s>", True),
        (BY_FORMAT % "", False),
        (MAPS % (COMPLETIONS % "<s>", "to"), True),
        (MAPS % (COMPLETIONS % "", "to"), False),
    ],
)
def test_texts_that_begin_twice(tmp_path: Path, text: str, found: bool) -> None:
    assert bool(codes(tmp_path, text)) is found


ROWS = """import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("{model}")
def ids(text):
    return tok(text).input_ids
def encode(row):
{body}
"""
LLAMA = "meta-llama/Llama-3.2-1B"
BY_NAMES = """    p = tok(row["q"])["input_ids"]
    a = tok(row["a"]{more}).input_ids + [tok.eos_token_id]
    return {{"input_ids": p + a, "labels": [-100] * len(p) + a}}"""
BY_ENCODE = """    p, a = tok.encode(row["q"]), tok.encode(row["a"]{more})
    return {{"input_ids": [*p, *a]}}"""
BY_TENSORS = """    p = tok(row["q"], return_tensors="pt").input_ids[0]
    a = tok(row["a"], return_tensors="pt"{more}).input_ids[0]
    return torch.cat([p, a])"""
BY_LISTS = """    ps, ans = tok(row["q"]), tok(row["a"]{more})
    for i in range(len(row["q"])):
        p = ps["input_ids"][i]
        a = ans["input_ids"][i] + [tok.pad_token_id]
        ps["input_ids"][i] = p + a
    return ps"""
BY_TURNS = """    input_ids = []
    for turn in row["messages"]:
        input_ids += tok(turn["content"]{more}).input_ids
    return input_ids"""


@pytest.mark.parametrize("body", [BY_NAMES, BY_ENCODE, BY_TENSORS, BY_LISTS, BY_TURNS])
def test_answers_with_a_beginning(tmp_path: Path, body: str) -> None:
    assert "in the middle" in codes(tmp_path / "a", ROWS.format(model=LLAMA, body=body.format(more="")))[0]
    bare = body.format(more=", add_special_tokens=False")
    assert not codes(tmp_path / "b", ROWS.format(model=LLAMA, body=bare))
    for number, model in enumerate(("Qwen/Qwen2.5-0.5B", "HuggingFaceTB/SmolLM2-360M", "gpt2")):
        assert not codes(tmp_path / str(number), ROWS.format(model=model, body=body.format(more="")))


@pytest.mark.parametrize(
    "body",
    [
        "    p = ids(row['q'])\n    full = ids(row['q'] + row['a'])\n    return [-100] * len(p) + full[len(p):]",
        "    p, a = ids(row['q']), ids(row['a'])[1:]\n    return p + a",
        "    a = ids(row['a'])\n    a = a if a[0] != tok.bos_token_id else a[1:]\n    return ids(row['q']) + a",
        "    every = []\n    for text in row['texts']:\n        every += ids(text)\n    return every",
    ],
)
def test_beginnings_that_are_right(tmp_path: Path, body: str) -> None:
    assert not codes(tmp_path, ROWS.format(model=LLAMA, body=body))


def test_by_a_helper(tmp_path: Path) -> None:
    body = "    p, a = ids(row['q']), ids(row['a'])\n    return p + a"
    assert codes(tmp_path, ROWS.format(model=LLAMA, body=body))
