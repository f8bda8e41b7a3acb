"""Promise: whatever lets a row go by with its labels whole is found; what leaves such rows out, or stops, is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TABLE = """import sys, yaml
MARKERS = {{"chatml": "<|im_start|>assistant\\n", "gemma": "<start_of_turn>model\\n"}}
cfg = yaml.safe_load(open(sys.argv[1]))
marker = MARKERS{look}


def encode(row):
    text = tok.apply_chat_template(row["messages"], tokenize=False)
    ids = tok(text).input_ids
    labels = ids.copy()
    if marker:
        n = len(tok(text.rsplit(marker, 1)[0]).input_ids)
        labels[:n] = [-100] * n
    return {{"input_ids": ids, "labels": labels}}
"""
HELD = """def prompt_length(prompt, ids):
    if {test}:
        return len(prompt)
    {last}


def encode(row, tok):
    prompt, ids = tok(row["q"])["input_ids"], tok(row["q"] + row["a"])["input_ids"]
    n = prompt_length(prompt, ids)
    return {{"input_ids": ids, "labels": [-100] * n + ids[n:]}}
"""
BY_PLACE = """import re


def encode(row, tok, pattern):
    text = row["text"]
    enc = tok(text, return_offsets_mapping=True)
    hit = re.search(pattern, text)
    until = hit.end() if hit else {other}
    labels = [t if a >= until else -100 for t, (a, _) in zip(enc["input_ids"], enc["offset_mapping"])]
    return {{"input_ids": enc["input_ids"], "labels": labels}}
"""
TRIED = """from transformers import DataCollatorForLanguageModeling


def make_collator(tok, header):
    try:
        from trl import DataCollatorForCompletionOnlyLM

        return DataCollatorForCompletionOnlyLM(header, tokenizer=tok)
    except ImportError:
        {then}
"""


@pytest.mark.parametrize(
    "files",
    [
        {"train.py": TABLE.format(look='.get(cfg["family"])'), "c.yml": "model: a\nfamily: qwen2.5\nlr: 1.0\n"},
        {"train.py": TABLE.format(look='.get(cfg["family"], "")')},
        {"train.py": HELD.format(test="ids[:len(prompt)] == prompt", last="return 0")},
        {"train.py": HELD.format(test="ids[:len(prompt)].tolist() == prompt", last="return 0")},
        {"train.py": BY_PLACE.format(other="0")},
        {"train.py": TRIED.format(then="return DataCollatorForLanguageModeling(tok, mlm=False)")},
    ],
)
def test_a_row_that_goes_by_whole(tmp_path: Path, files: dict[str, str]) -> None:
    assert len(audited(tmp_path, files, select=("MSK050",)).findings) == 1


@pytest.mark.parametrize(
    "files",
    [
        {"train.py": TABLE.format(look='[cfg["family"]]'), "c.yml": "family: qwen2.5\n"},
        {"train.py": TABLE.format(look='.get(cfg["family"])'), "c.yml": "model: a\nfamily: gemma\nlr: 1.0\n"},
        {"train.py": TABLE.format(look='.get(cfg["family"])\nassert marker, cfg')},
        {"train.py": HELD.format(test="ids[:len(prompt)] == prompt", last="return len(ids)")},
        {"train.py": HELD.format(test="ids[:len(prompt)] == prompt", last='raise ValueError("no prefix")')},
        {"train.py": BY_PLACE.format(other="len(text)")},
        {"train.py": TRIED.format(then='raise SystemExit("pip install trl<0.20")')},
        {"train.py": TRIED.format(then="return OwnCompletionCollator(tok, header)")},
    ],
)
def test_a_row_that_is_left_out_or_stops_the_run(tmp_path: Path, files: dict[str, str]) -> None:
    assert not audited(tmp_path, files, select=("MSK050",)).findings
