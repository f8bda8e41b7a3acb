"""Promise: files that are named beside each other for training and evaluation are compared row by row, and no others."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

ROWS = [f'{{"q": "question number {number}", "a": "{number}"}}' for number in range(12)]
AGAIN = ['{"a": "3", "q": "question number 3"}', *ROWS[4:6]]
OTHERS = ['{"q": "something else", "a": "x"}', '{"q": "another thing", "a": "y"}', '{"q": "a third one", "a": "z"}']


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t5.toml", '[files]\ntrain = "data/train.jsonl"\neval = "data/eval.jsonl"\n'),
        ("conf.yaml", "train_file: data/train.jsonl\nvalidation_file: data/eval.jsonl\n"),
        (
            "train.py",
            'ds = load_dataset("json", data_files={"train": "data/train.jsonl", "test": "data/eval.jsonl"})\n',
        ),
        ("run.sh", "python a.py --train_file data/train.jsonl --validation_file data/eval.jsonl\n"),
    ],
)
@pytest.mark.parametrize(("rows", "found"), [(AGAIN, True), (OTHERS, False), ([ROWS[0], *OTHERS], False)])
def test_rows_of_two_files(tmp_path: Path, name: str, text: str, rows: list[str], found: bool) -> None:
    """In whatever order a row has its keys; one row that they share may be chance."""
    held = {"data/train.jsonl": "\n".join(ROWS) + "\n", "data/eval.jsonl": "\n".join(rows) + "\n", "a.py": "print(1)\n"}
    said = audited(tmp_path, {**held, name: text}, select=("DAT004",)).findings
    assert [one.place.file for one in said] == ["data/eval.jsonl"] * found


def test_files_that_are_not_named_or_not_there(tmp_path: Path) -> None:
    held = {"data/train.jsonl": "\n".join(ROWS) + "\n", "data/eval.jsonl": "\n".join(AGAIN) + "\n"}
    assert not audited(tmp_path / "a", {**held, "t.toml": 'train = "data/train.jsonl"\n'}, select=("DAT004",)).findings
    named = {"t.toml": 'train = "data/train.jsonl"\neval = "data/other.jsonl"\n'}
    assert not audited(tmp_path / "b", {**held, **named}, select=("DAT004",)).findings
