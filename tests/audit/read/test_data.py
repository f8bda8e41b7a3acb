"""Promise: data is read through Dynotune's own recogniser and ledger; what was not read, or is estimated, is said."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.setting import Setting
from dynotune.audit.place import Place
from dynotune.audit.read.data import read_data
from dynotune.errors import DataError
from tests.data.made_tokenizer import made_tokenizer


def rows_in(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def chat(number: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"What is {number}?"}, {"role": "assistant", "content": "x" * 40}]}


def job_of(method: Method = Method.SFT, **values: object) -> Job:
    return Job(Trainer.TRL, method, {name: Setting(name, value, Place("sft.yaml")) for name, value in values.items()})


def test_lengths_are_estimated_without_a_tokenizer(tmp_path: Path) -> None:
    found = read_data(rows_in(tmp_path / "a.jsonl", [chat(n) for n in range(3)]), None, None)
    assert (found.rows, found.is_estimated, found.per_example, found.sampled) == (3, True, 1, False)
    assert found.format == "messages (3 rows)"
    assert list(found.lengths) == [4 + 4 + 4 + 4] * 3
    assert any("estimated" in said for said in found.said)


def test_lengths_and_labels_are_the_tokenizers(tmp_path: Path) -> None:
    made_tokenizer().save_pretrained(tmp_path / "tok")
    path = rows_in(tmp_path / "a.jsonl", [chat(n) for n in range(3)])
    whole = read_data(path, str(tmp_path / "tok"), job_of())
    answers = read_data(path, str(tmp_path / "tok"), job_of(assistant_only_loss=True))
    assert not whole.is_estimated
    assert list(whole.label_tokens) == [length - 1 for length in whole.lengths]
    assert all(0 < few < many for few, many in zip(answers.label_tokens, whole.label_tokens, strict=True))
    assert list(whole.first_labels) == [1, 1, 1]
    assert all(first > 10 for first in answers.first_labels)
    assert whole.template["end_token"] == "<|im_end|>"


def test_pairs_have_two_lengths(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a question", "chosen": "x" * 40, "rejected": "y" * 8},
        {"prompt": "q", "chosen": "s", "rejected": "s"},
    ]
    for job in (None, job_of(Method.DPO)):
        found = read_data(rows_in(tmp_path / "p.jsonl", rows), None, job)
        assert found.per_example == 2
        assert len(found.lengths) == 2
        assert found.lengths[0] > found.lengths[1]
        assert found.ledger["skipped"] == {"chosen-equals-rejected": 1}


def test_only_as_much_is_read_as_asked(tmp_path: Path) -> None:
    path = rows_in(tmp_path / "a.jsonl", [chat(n) for n in range(300)])
    found = read_data(path, None, None, rows=100)
    assert (found.rows, found.sampled) == (100, True)
    assert any("first 100 rows" in said for said in found.said)
    late = read_data(path, None, None, seconds=1e9)
    assert (late.rows, late.sampled) == (300, False)


def test_what_two_sets_share_can_be_found(tmp_path: Path) -> None:
    one = read_data(rows_in(tmp_path / "a.jsonl", [chat(n) for n in range(5)]), None, None)
    other = read_data(rows_in(tmp_path / "b.jsonl", [chat(n) for n in range(3, 9)]), None, None)
    assert len(set(one.contents) & set(other.contents)) == 2


def test_a_name_on_a_hub_is_not_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="local data only"):
        read_data("someone/a-data-set", None, None)


def test_rows_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    path = rows_in(tmp_path / "a.jsonl", [chat(1), {"nothing": 1}, chat(1)])
    found = read_data(path, None, None)
    assert found.ledger["rows_used"] == 2
    assert sum(found.ledger["skipped"].values()) == 1
    assert found.ledger["notices"]["exact-duplicate"] == 1
