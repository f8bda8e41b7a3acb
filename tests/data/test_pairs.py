"""Pairs from a file to the token store: whole, counted as pairs, and kept together wherever rows are moved."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from dynotune.config.dpo import DPOConfig
from dynotune.config.keys.data import DataConfig
from dynotune.config.sft import SFTConfig
from dynotune.data.account.ledger import Ledger
from dynotune.data.examples import Example, Examples
from dynotune.data.ingest import Loaded
from dynotune.data.load import load_train_and_eval
from dynotune.data.rows import Place
from dynotune.data.sources.arrange import hold_out
from dynotune.data.store.layout import DamagedError, Manifest
from dynotune.data.tokens.encode import Encoder
from dynotune.data.workers.pool import setup_of
from dynotune.errors import ConfigError, DataError
from dynotune.prepare.command import PrepareOptions, prepare_data
from tests.data.made_tokenizer import made_tokenizer
from tests.data.pairs import pair_of

ROWS = [pair_of(f"Question {n}", f"good {n}", f"bad {n}") for n in range(40)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def load(
    path: Path, cache: Path | None = None, run: Path | None = None, **keys: Any
) -> tuple[Loaded, dict[str, Loaded]]:
    where = {"token_cache": "off"} if cache is None else {"token_cache_dir": str(cache)}
    config = DPOConfig(dataset_name=str(path), model_name_or_path="m", disable_tqdm=True, **where, **keys)
    return load_train_and_eval(config, Encoder(made_tokenizer(), config), run)


def assert_whole(examples: Examples) -> None:
    """Documents 2p and 2p + 1 are the chosen and the rejected side of one row."""
    tokenizer = made_tokenizer()
    assert examples.per_example == 2
    for pair in range(examples.rows):
        sides = [examples[2 * pair], examples[2 * pair + 1]]
        assert sides[0].place == sides[1].place
        number = sides[0].place.line
        assert number is not None
        for side, word in zip(sides, ("good", "bad"), strict=True):
            assert f"{word} {number - 1}<" in tokenizer.decode(side.ids_T)


def test_every_row_becomes_two_documents_and_counts_as_one(tmp_path: Path) -> None:
    train, _ = load(write(tmp_path / "a.jsonl", ROWS))
    assert_whole(train.examples)
    assert len(train.examples) == 80
    ledger = train.ledger
    assert (ledger.rows_read, ledger.rows_used, ledger.rows_unpacked) == (40, 40, 0)
    assert ledger.tokens_used == len(train.examples.ids)
    assert train.format == "prompt, chosen and rejected as messages (40 pairs)"


def test_a_bad_pair_stops_or_is_left_out_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*ROWS[:3], pair_of("Q", "same", "same"), ROWS[4]])
    with pytest.raises(DataError, match=r"a.jsonl:4: chosen-equals-rejected: .* are the same"):
        load(path)
    train, _ = load(path, run=tmp_path, on_bad_row="skip")
    assert_whole(train.examples)
    assert (train.ledger.rows_read, train.ledger.rows_used) == (5, 4)
    assert train.ledger.skipped == {"chosen-equals-rejected": 1}
    assert json.loads((tmp_path / "quarantine.jsonl").read_text())["line"] == 4


def test_repeated_and_contradicting_pairs_are_noticed(tmp_path: Path) -> None:
    swapped = pair_of("Question 0", "bad 0", "good 0")
    near = pair_of("Question 0", "Bad  0", "good 0")
    several = pair_of("Question 0", "good 0", "worse 0")  # another pair to the same prompt is the usual case
    train, _ = load(write(tmp_path / "a.jsonl", [ROWS[0], ROWS[1], ROWS[0], swapped, near, several]))
    found = {name: places for name, places in train.ledger.places.items() if "dup" in name or "contra" in name}
    assert {name: [place.rpartition(":")[2] for place in places] for name, places in found.items()} == {
        "exact-duplicate": ["3"],
        "contradicting-pair": ["4"],
        "near-duplicate": ["5"],
    }


def test_the_store_keeps_pairs_and_never_serves_them_as_rows(tmp_path: Path) -> None:
    path, cache = write(tmp_path / "a.jsonl", ROWS), tmp_path / "cache"
    built, _ = load(path, cache)
    taken, _ = load(path, cache)
    assert taken.store.startswith("hit: 40 pairs")
    assert_whole(taken.examples)
    assert taken.examples.digest() == built.examples.digest()
    assert taken.ledger.to_json() == built.ledger.to_json()
    assert taken.about["lengths_of"] == "sides of pairs"
    (store,) = [folder.parent for folder in cache.rglob("manifest.json")]
    manifest = Manifest.read(store)
    assert (manifest.per_example, manifest.rows) == (2, 80)
    assert "per_example" in manifest.parts

    config = SFTConfig(dataset_name=str(path), token_cache_dir=str(cache), disable_tqdm=True)
    with pytest.raises(DataError, match="preference-row"):
        load_train_and_eval(config, Encoder(made_tokenizer(), config), None)


def test_a_manifest_of_half_a_pair_is_damaged(tmp_path: Path) -> None:
    load(write(tmp_path / "a.jsonl", ROWS), tmp_path / "cache")
    (store,) = [folder.parent for folder in (tmp_path / "cache").rglob("manifest.json")]
    manifest = Manifest.read(store)
    manifest.rows -= 1
    manifest.replace(store)
    with pytest.raises(DamagedError, match="not whole"):
        Manifest.read(store)


def test_other_processes_and_threads_make_the_same_pairs(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ROWS * 10)
    one, two = (load(path, dataset_num_proc=number)[0].examples for number in (1, 2))
    assert one.digest() == two.digest()
    assert one.rows == two.rows == 400


@pytest.mark.parametrize(("config", "per_example"), [(DPOConfig(), 2), (SFTConfig(), 1)])
def test_a_process_of_its_own_learns_that_rows_are_pairs(config: DataConfig, per_example: int) -> None:
    import pickle

    topic, _ = pickle.loads(setup_of(config, made_tokenizer(), []))
    assert topic.per_example == per_example
    assert topic == type(topic)()


@pytest.mark.parametrize("size", [0.25, 7])
def test_held_out_pairs_are_whole(tmp_path: Path, size: float) -> None:
    train, evaluation = load(write(tmp_path / "a.jsonl", ROWS), test_split_size=size)
    held_out = evaluation["eval"]
    assert_whole(train.examples)
    assert_whole(held_out.examples)
    expected = 10 if size < 1 else 7
    assert (held_out.examples.rows, train.examples.rows) == (expected, 40 - expected)
    assert held_out.ledger.rows_used == expected
    assert train.ledger.skipped == {"held-out": expected}
    assert train.ledger.tokens_used == int(train.examples.lengths.sum())
    lines = {place.line for place in train.examples.places} | {place.line for place in held_out.examples.places}
    assert lines == set(range(1, 41))


def test_prepare_tells_of_pairs_and_exports_none(tmp_path: Path) -> None:
    made_tokenizer().save_pretrained(tmp_path / "tokenizer")
    path = write(tmp_path / "a.jsonl", [*ROWS, pair_of("Q " * 60, "long good", "long bad")])
    config = DPOConfig(
        dataset_name=str(path),
        model_name_or_path=str(tmp_path / "tokenizer"),
        token_cache_dir=str(tmp_path / "cache"),
        max_length=60,
        disable_tqdm=True,
    )
    out = StringIO()
    told = prepare_data(config, PrepareOptions(show=1), Console(file=out, width=200))["training data"]
    assert told["format"] == "prompt, chosen and rejected as messages (41 pairs)"
    assert told["ledger"]["rows_used"] == 40
    assert told["ledger"]["skipped"] == {"no-labels-after-truncation": 1}
    assert "lengths before `max_length` (sides of pairs of tokens)" in out.getvalue()
    assert "prompt-chosen-rejected, rejected" in out.getvalue()
    with pytest.raises(ConfigError, match="holds no pair"):
        prepare_data(config, PrepareOptions(export=tmp_path / "rows.parquet"), Console(file=out))


def test_a_table_of_datasets_is_read_like_its_file(tmp_path: Path) -> None:
    """Arrow gives every turn the keys of all turns, and tables of several forms every column, with nulls."""
    import datasets

    rows = [*ROWS[:3], {"chosen": [*ROWS[3]["prompt"], *ROWS[3]["chosen"]], "rejected": None, "prompt": None}]
    rows[3]["rejected"] = [*ROWS[3]["prompt"], *ROWS[3]["rejected"]]
    config = DPOConfig(token_cache="off", disable_tqdm=True)
    passed = datasets.Dataset.from_list(rows)
    table, _ = load_train_and_eval(config, Encoder(made_tokenizer(), config), None, train_dataset=passed)
    file, _ = load(write(tmp_path / "a.jsonl", rows))
    assert table.examples.digest() == file.examples.digest()
    assert table.format.startswith(
        "mixed formats: prompt, chosen and rejected as messages (3 pairs); chosen and rejected"
    )


def test_a_mixture_keeps_pairs_together(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", ROWS[:20])
    second = write(tmp_path / "b.jsonl", [{**row, "bad": row.pop("rejected")} for row in map(dict, ROWS[:10])])
    entries = [
        {"path": str(first), "fraction": 0.5},
        {"path": str(second), "fraction": 0.5, "columns": {"rejected": "bad"}},
    ]
    config = DPOConfig(datasets=entries, token_cache="off", disable_tqdm=True)
    train, _ = load_train_and_eval(config, Encoder(made_tokenizer(), config), None)
    assert_whole(train.examples)
    assert train.examples.rows == 20


def test_documents_in_any_order_are_no_pairs() -> None:
    """Negative control: only `take_rows` keeps sides together, and says so."""
    ids = [np.array([n, n], np.int32) for n in range(6)]
    examples = Examples.from_list((Example(one, one, Place("f", 1)) for one in ids), per_example=2)
    assert examples.take(np.array([1, 0, 4, 5])).per_example == 1
    kept = examples.take_rows(np.array([2, 0]))
    assert (kept.per_example, kept.rows, kept.ids[kept.starts].tolist()) == (2, 2, [4, 5, 0, 1])
    assert examples.by_row(examples.lengths).tolist() == [4, 4, 4]
    train, held_out, _ = hold_out(kept, _ledger_of(kept), 1, seed=0)
    assert (train.rows, held_out.rows) == (1, 1)


def _ledger_of(examples: Examples) -> Ledger:
    ledger = Ledger()
    ones = np.ones(examples.rows, np.int64)
    ledger.use_rows(examples.places_of_rows, examples.by_row(examples.lengths), 2 * ones)
    return ledger
