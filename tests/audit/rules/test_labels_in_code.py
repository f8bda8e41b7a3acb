"""Promise: labels that a script makes itself are followed, and said only where prompt, padding or beginning is wrong."""

from pathlib import Path

import pytest

from tests.audit.rules.scripts import said

SEARCH = """
def mask(ids, marker):
    labels = list(ids)
    for i in range(len(ids)):
        if ids[i : i + 3] == marker:
            labels[:i] = [-100] * i
            {found}
    {missing}
"""


def test_an_answer_that_is_not_found(tmp_path: Path) -> None:
    whole = SEARCH.format(found="return labels", missing="return labels")
    assert said("MSK050", tmp_path / "a", whole)
    for number, missing in enumerate(("raise ValueError", "return [-100] * len(ids)", "return None")):
        assert not said("MSK050", tmp_path / str(number), SEARCH.format(found="return labels", missing=missing))


@pytest.mark.parametrize(
    ("branch", "found"),
    [
        ("if start == -1:\n        start = 0", True),
        ("if start < 0:\n        return ids.copy()", False),  # nothing is called labels
        ("if start == -1:\n        return {'labels': ids[:]}", True),
        ("if start == -1:\n        raise ValueError(text)", False),
        ("if start == -1:\n        start = len(ids)", False),
        ("if start == -1:\n        labels = [-100] * len(ids)", False),
    ],
)
def test_a_search_by_text(tmp_path: Path, branch: str, found: bool) -> None:
    text = f"""
def encode(text, ids):
    start = text.find("### Response:")
    {branch}
    labels = [-100] * start + ids[start:]
    return {{"input_ids": ids, "labels": labels}}
"""
    assert bool(said("MSK050", tmp_path, text)) is found


ENCODE = """
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("{model}")
def encode(row):
    {line}
    {labels}
    return out
"""


@pytest.mark.parametrize(
    ("line", "labels", "found"),
    [
        ('out = tok(row["t"], padding="max_length", max_length=9)', 'out["labels"] = out["input_ids"].copy()', True),
        ('out = tok(row["t"], padding=True)', 'out = dict(out, labels=out["input_ids"])', True),
        ('out = tok(row["t"])', 'out["labels"] = out["input_ids"].copy()', False),
        ('out = tok(row["t"], padding=True)', 'out["labels"] = mask(out["input_ids"])', False),
        ('out = tok(row["t"], padding=True)', 'out["labels"] = out["input_ids"]; out["labels"][0] = -100', False),
    ],
)
def test_the_loss_on_padding(tmp_path: Path, line: str, labels: str, found: bool) -> None:
    text = ENCODE.format(model="Qwen/Qwen2.5-0.5B", line=line, labels=labels)
    assert bool(said("MSK052", tmp_path, text)) is found


@pytest.mark.parametrize(
    ("model", "line", "found"),
    [
        ("meta-llama/Llama-3.2-1B-Instruct", "out = tok(tok.apply_chat_template(row, tokenize=False))", True),
        ("google/gemma-2-2b-it", "text = tok.apply_chat_template(row, tokenize=False); out = tok(text)", True),
        ("Qwen/Qwen2.5-0.5B", "out = tok(tok.apply_chat_template(row, tokenize=False))", False),
        (
            "meta-llama/Llama-3.2-1B",
            "out = tok(tok.apply_chat_template(row, tokenize=False), add_special_tokens=False)",
            False,
        ),
        ("meta-llama/Llama-3.2-1B", "out = tok(row['text'])", False),
        ("meta-llama/Llama-3.2-1B", "out = {'text': tok.apply_chat_template(row, tokenize=False)}", False),
    ],
)
def test_two_beginnings(tmp_path: Path, model: str, line: str, found: bool) -> None:
    assert bool(said("MSK053", tmp_path, ENCODE.format(model=model, line=line, labels="pass"))) is found


def test_two_beginnings_by_the_trainer(tmp_path: Path) -> None:
    """TRL tokenises a column `text` with special tokens; rows of messages it renders and tokenises as one."""
    line = "out = {'text': tok.apply_chat_template(row, tokenize=False)}"
    text = ENCODE.format(model="google/gemma-2-2b-it", line=line, labels="pass")
    trains = "\nfrom trl import SFTTrainer\nSFTTrainer(model, train_dataset=rows.map(encode))\n"
    assert said("MSK053", tmp_path, text + trains)
