"""Promise: a search of one's own for a mark of another template is found; one for its own mark, or in other text, is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

ROWS = """from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("{model}")
{head}


def encode(row):
    text = tok.apply_chat_template(row["messages"], tokenize=False)
    ids = tok(text)["input_ids"]
    labels = list(ids)
    {search}
    return {{"input_ids": ids, "labels": labels}}
"""
QWEN, LLAMA = "Qwen/Qwen2.5-0.5B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"
FIND = "start = find(ids, HEADER)\n    labels[:start] = [-100] * start"
SPLIT = "start = len(tok(text.split({})[0])['input_ids'])\n    labels[:start] = [-100] * start"


@pytest.mark.parametrize(
    ("model", "head", "search"),
    [
        (QWEN, 'HEADER = tok.encode("### Response:\\n", add_special_tokens=False)', FIND),
        (QWEN, 'HEADER = tok("### Response:", add_special_tokens=False)["input_ids"]', FIND),
        (QWEN, 'HEADER = tok("### Response:", add_special_tokens=False).input_ids', FIND),
        (LLAMA, 'HEADER = tok.encode("<|im_start|>assistant\\n")', FIND),
        (QWEN, "", SPLIT.format("'[/INST]'")),
        (QWEN, 'MARK = "<|start_header_id|>assistant<|end_header_id|>"', SPLIT.format("MARK")),
    ],
)
def test_a_mark_of_another_template_never_comes(tmp_path: Path, model: str, head: str, search: str) -> None:
    files = {"train.py": ROWS.format(model=model, head=head, search=search)}
    (finding,) = audited(tmp_path, files, select=("MSK055",)).findings
    assert "never comes" in finding.message


@pytest.mark.parametrize(
    ("model", "head", "search"),
    [
        (QWEN, 'HEADER = tok.encode("<|im_start|>assistant\\n")', FIND),
        (LLAMA, 'HEADER = tok.encode("<|start_header_id|>assistant<|end_header_id|>")', FIND),
        ("a/model-of-ours", 'HEADER = tok.encode("### Response:\\n")', FIND),
        (QWEN, 'tok.chat_template = "### Response:"\nHEADER = tok.encode("### Response:\\n")', FIND),
        (QWEN, 'TITLES = tok.encode("### Response:\\n")', "labels[:3] = [-100] * 3"),
        (QWEN, 'sections = document.split("## ")', "labels[:3] = [-100] * 3"),
        (QWEN, "def notes(text):\n    return text.split('### Response:')[0]", "labels[:3] = [-100] * 3"),
        (QWEN, "", SPLIT.format("'### Notes'")),
        (QWEN, 'HEADER = tok.encode("### Response:\\n")', "pass"),  # masks nothing
    ],
)
def test_its_own_is_not(tmp_path: Path, model: str, head: str, search: str) -> None:
    files = {"train.py": ROWS.format(model=model, head=head, search=search)}
    assert not audited(tmp_path, files, select=("MSK055",)).findings
