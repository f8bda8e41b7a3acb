"""Promises: exported rows are read back as they were, by us and by TRL."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import load_dataset

from dynotune.data.examples import IGNORE
from dynotune.errors import ConfigError, DataError
from dynotune.plan.content import make_content
from dynotune.prepare import export as export_module
from dynotune.prepare.export import ExportKind, export_examples
from tests.data.store.made import chat, config_of, load, write

ROWS = [{"prompt": "p" * n, "completion": f"answer {n}"} for n in range(1, 30)] + [chat("a", "b" * 20)]


def exported(tmp_path: Path, name: str, packed: int | None = None, **keys: Any) -> tuple[Path, Any, Any]:
    data = write(tmp_path / "data.jsonl", ROWS)
    loaded = load(data, **keys)
    content = make_content(loaded.examples, config_of(data, **keys), loaded.ledger)
    kind = ExportKind.of(tmp_path / name, packed)
    assert "rows" in export_examples(content, tmp_path / name, kind)
    return kind.file(tmp_path / name), loaded, content


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl", "folder"])
def test_unpacked_rows_are_read_back_identically(tmp_path: Path, name: str) -> None:
    file, loaded, _ = exported(tmp_path, name)
    back = load(file)
    assert back.format.startswith("pre-tokenised") or "token" in back.format
    assert len(back.examples) == len(loaded.examples)
    for i in range(len(back.examples)):
        assert np.array_equal(back.examples[i].ids_T, loaded.examples[i].ids_T)
        assert np.array_equal(back.examples[i].labels_T, loaded.examples[i].labels_T)


def test_truncation_is_exported(tmp_path: Path) -> None:
    file, _, content = exported(tmp_path, "rows.jsonl", max_length=16)
    lengths = [len(json.loads(line)["input_ids"]) for line in file.read_text().splitlines()]
    assert max(lengths) == 16
    assert lengths == content.spans.lengths_of(content.rows).tolist()


def test_packed_rows_hold_every_document_once_and_say_where_it_begins(tmp_path: Path) -> None:
    file, loaded, _ = exported(tmp_path, "rows.parquet", packed=64)
    table = load_dataset("parquet", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
    found = []
    for row in table:
        assert len(row["input_ids"]) == sum(row["seq_lengths"]) <= 64
        assert row["position_ids"] == [p for length in row["seq_lengths"] for p in range(length)]
        start = 0
        for length in row["seq_lengths"]:
            found.append((row["input_ids"][start : start + length], row["labels"][start : start + length]))
            start += length
    expected = []
    for i in range(len(loaded.examples)):
        example = loaded.examples[i]
        labels = example.labels_T.copy()
        labels[0] = IGNORE
        expected.append((example.ids_T.tolist(), labels.tolist()))
    assert sorted(found) == sorted(expected)
    assert len(table) < len(loaded.examples) / 2
    # and our own reader splits it into the same documents
    back = load(file)
    assert sorted(back.examples[i].ids_T.tolist() for i in range(len(back.examples))) == sorted(
        ids for ids, _ in expected
    )
    assert "label-crosses-boundary" not in back.ledger.notices


def test_trl_takes_both_kinds_as_they_are(tmp_path: Path) -> None:
    """TRL's trainer leaves rows with `input_ids` alone, and its collator makes batches of ours."""
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    for name, packed in (("a.parquet", None), ("b.parquet", 64)):
        file, _, _ = exported(tmp_path, name, packed)
        table = load_dataset("parquet", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
        rows = [table[i] for i in range(3)]
        collator = DataCollatorForLanguageModeling(pad_token_id=2, padding_free=packed is not None)
        batch = collator(rows)
        real = batch["labels"] != IGNORE
        assert int(real.sum()) == sum(label != IGNORE for row in rows for label in row["labels"])
        if packed is None:
            lengths = [len(row["input_ids"]) for row in rows]
            assert batch["attention_mask"].sum(1).tolist() == lengths
            for i, row in enumerate(rows):
                assert batch["input_ids"][i, : lengths[i]].tolist() == row["input_ids"]
        else:
            assert batch["input_ids"][0].tolist() == [token for row in rows for token in row["input_ids"]]
            assert int((batch["position_ids"][0] == 0).sum()) == sum(len(row["seq_lengths"]) for row in rows)


def test_names_and_lengths_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.parquet or \.jsonl file, or a folder"):
        ExportKind.of(tmp_path / "rows.csv", None)
    with pytest.raises(ConfigError, match="holds nothing"):
        ExportKind.of(tmp_path / "rows.jsonl", 1)
    with pytest.raises(DataError, match="never cut in two"):
        exported(tmp_path, "rows.jsonl", packed=8)
    assert not (tmp_path / "rows.jsonl").exists()
    loaded = load(tmp_path / "data.jsonl")
    content = make_content(loaded.examples, config_of(None), loaded.ledger)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        export_examples(content, tmp_path / "file" / "a.jsonl", ExportKind("jsonl", False, None))


def test_what_is_there_is_never_overwritten_not_even_the_data_itself(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl")
    config = config_of(data)
    loaded = load(data)
    content = make_content(loaded.examples, config, loaded.ledger)
    before = data.read_text()
    (tmp_path / "link.jsonl").symlink_to(data)
    for name in ("data.jsonl", "link.jsonl"):
        with pytest.raises(DataError, match="is there already"):
            export_examples(content, tmp_path / name, ExportKind.of(tmp_path / name, None))
    assert data.read_text() == before


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_failure_leaves_no_part_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: type[BaseException]
) -> None:
    data = write(tmp_path / "data.jsonl")
    loaded = load(data)
    content = make_content(loaded.examples, config_of(data), loaded.ledger)

    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(export_module, "_document", fail)
    before = set(tmp_path.iterdir())
    with pytest.raises(error):
        export_examples(content, tmp_path / name, ExportKind.of(tmp_path / name, None))
    assert set(tmp_path.iterdir()) == before
