"""`datasets:` has TRL's meaning, and what a share leaves out is accounted for."""

import json
from pathlib import Path
from typing import Any

import pytest

from dynotune.config.keys.data import DataConfig, DatasetEntry
from dynotune.data.account.ledger import Ledger
from dynotune.data.rows import BadRow, Place, Record
from dynotune.data.sources.columns import parsed, with_columns
from dynotune.data.sources.mixture import OUTSIDE, mixture_rows, open_mixture
from dynotune.errors import ConfigError


def write(path: Path, n: int) -> str:
    path.write_text("".join(json.dumps({"text": f"{path.stem}{i}", "other": 1}) + "\n" for i in range(n)))
    return str(path)


def mix(entries: list[dict[str, Any]], **keys: Any) -> tuple[list[dict[str, Any]], Ledger]:
    config = DataConfig(datasets=[DatasetEntry(**entry) for entry in entries], **keys)
    ledger = Ledger()
    rows = list(mixture_rows(open_mixture(config), config, ledger))
    return [dict(row.values) for row in map(parsed, rows) if isinstance(row, Record)], ledger


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (3, 1), (0.1, 0.7), (1, 0), (1, 1e-9), (0.333, 0.667)])
def test_fractions_take_the_rows_that_trl_takes(tmp_path: Path, fractions: tuple[float, float]) -> None:
    trl = pytest.importorskip("trl")
    from trl.scripts.utils import DatasetConfig

    paths = [write(tmp_path / "a.jsonl", 10), write(tmp_path / "b.jsonl", 17)]
    files = [{"path": "json", "data_files": path} for path in paths]
    theirs = trl.get_dataset(
        trl.DatasetMixtureConfig(
            datasets=[DatasetConfig(**file, fraction=f) for file, f in zip(files, fractions, strict=True)]
        )
    )["train"]["text"]
    ours, ledger = mix([{"path": path, "fraction": f} for path, f in zip(paths, fractions, strict=True)])
    assert [row["text"] for row in ours] == list(theirs)
    assert ledger.rows_read == ledger.skipped[OUTSIDE] == 27 - len(theirs)


def test_without_fractions_all_rows_follow_each_other(tmp_path: Path) -> None:
    ours, ledger = mix([{"path": write(tmp_path / "a.jsonl", 2)}, {"path": write(tmp_path / "b.jsonl", 2)}])
    assert [row["text"] for row in ours] == ["a0", "a1", "b0", "b1"]
    assert ledger.rows_read == 0


def test_fraction_of_a_slice_counts_the_slice(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.jsonl", 10), write(tmp_path / "b.jsonl", 10)
    ours, _ = mix([{"path": a, "split": "train[:2]", "fraction": 1}, {"path": b, "fraction": 1}])
    assert [row["text"] for row in ours] == ["a0", "a1", "b0", "b1"]


def test_fractions_for_some_only_are_refused(tmp_path: Path) -> None:
    a = write(tmp_path / "a.jsonl", 1)
    with pytest.raises(ConfigError, match="for all or for none"):
        mix([{"path": a, "fraction": 1}, {"path": a}])
    with pytest.raises(ConfigError, match="every `fraction` is 0"):
        mix([{"path": a, "fraction": 0}])


def test_each_entry_names_its_own_columns(tmp_path: Path) -> None:
    a, b, c = (write(tmp_path / f"{name}.jsonl", 1) for name in "abc")
    ours, _ = mix(
        [{"path": a, "columns": {"prompt": "text"}}, {"path": b, "columns": ["text"]}, {"path": c}],
        columns={"completion": "text"},
    )
    assert ours == [{"other": 1, "prompt": "a0"}, {"text": "b0"}, {"other": 1, "completion": "c0"}]


def test_columns_rename_and_a_missing_one_lists_those_there_are() -> None:
    record = Record(Place("f", 1), {"question": "q", "answer": "a", "prompt": "old", "id": 7}, ["crlf"])
    renamed = with_columns(record, {"prompt": "question", "completion": "answer"})
    assert isinstance(renamed, Record)
    assert (renamed.values, renamed.notices) == ({"id": 7, "prompt": "q", "completion": "a"}, ["crlf"])
    swapped = with_columns(record, {"question": "answer", "answer": "question"})
    assert isinstance(swapped, Record)
    assert (swapped.values["question"], swapped.values["answer"]) == ("a", "q")
    bad = with_columns(record, {"prompt": "query"})
    assert isinstance(bad, BadRow)
    assert bad.reason == "mapped-column-missing"
    assert "question, answer, prompt, id" in bad.detail
