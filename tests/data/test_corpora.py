"""Real data loads, completely accounted for, in bounded time."""

import gzip
import json
import time
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from dynotune.config.sft import SFTConfig
from dynotune.data.load import load_train_and_eval
from dynotune.data.read.readers import read_records
from dynotune.data.rows import Record
from dynotune.data.tokens.encode import Encoder
from tests.data.fake_encoder import FakeEncoder

SFT_MIX_ROWS = 19_971


def test_reading_keeps_up_with_the_tokenizer(shared: Path) -> None:
    """20,000 rows, 37 MB of JSON: strictness must not cost seconds (0.5 s when this was written)."""
    start = time.process_time()
    rows = list(read_records(shared / "data" / "sft" / "sft_mix.jsonl.gz"))
    assert time.process_time() - start < 5
    assert len(rows) == SFT_MIX_ROWS
    assert all(isinstance(row, Record) and not row.notices for row in rows)


def test_the_strict_reader_reads_what_json_reads(shared: Path) -> None:
    path = shared / "data" / "sft" / "sft_mix.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line, row in zip(lines, read_records(path), strict=True):
            assert isinstance(row, Record)
            assert row.values == json.loads(line)


def test_the_chat_mix_loads_with_a_complete_ledger(shared: Path) -> None:
    """Every row is used, and the checks of 37 MB take seconds."""
    config = SFTConfig(dataset_name=str(shared / "data" / "sft" / "sft_mix.jsonl.gz"))
    start = time.process_time()
    loaded, _ = load_train_and_eval(config, FakeEncoder(), None)
    assert time.process_time() - start < 40
    ledger = loaded.ledger
    ledger.check()
    assert loaded.format == f"messages ({SFT_MIX_ROWS:,} rows)"
    assert ledger.rows_read == ledger.rows_used == len(loaded.examples) == SFT_MIX_ROWS
    assert ledger.tokens_read == ledger.tokens_used == len(loaded.examples.ids)
    assert not ledger.skipped
    assert ledger.notices["conflicting-answer"] > 0


@pytest.mark.long
def test_the_chat_mix_loads_with_a_real_tokenizer(shared: Path, stories: Path) -> None:
    config = SFTConfig(dataset_name=str(shared / "data" / "sft" / "sft_mix.jsonl.gz"))
    loaded, _ = load_train_and_eval(config, Encoder(AutoTokenizer.from_pretrained(stories), config), None)
    loaded.ledger.check()
    assert loaded.ledger.rows_used == SFT_MIX_ROWS
    assert loaded.ledger.tokens_used == len(loaded.examples.ids)


def test_gsm8k_trains_by_its_columns_and_evaluates_on_its_test_file(shared: Path) -> None:
    math = shared / "data" / "math"
    config = SFTConfig(
        dataset_name=str(math / "gsm8k_train.jsonl.gz"),
        eval_dataset_name=str(math / "gsm8k_test.jsonl.gz"),
        eval_strategy="steps",
        columns={"prompt": "question", "completion": "answer"},
    )
    train, evaluation = load_train_and_eval(config, FakeEncoder(), None)
    assert (len(train.examples), len(evaluation["eval"].examples)) == (7473, 1319)
    assert train.format == "prompt-completion (7,473 rows)"


def test_huge_rows_load_in_bounded_time(shared: Path, stories: Path) -> None:
    """5 M characters in a row, a million without a space, 20,000 turns: no step is worse than linear."""
    config = SFTConfig(dataset_name=str(shared / "data" / "nasty" / "huge_row.jsonl.gz"))
    start = time.process_time()
    loaded, _ = load_train_and_eval(config, Encoder(AutoTokenizer.from_pretrained(stories), config), None)
    assert time.process_time() - start < 60
    assert loaded.ledger.rows_used == 7
    assert max(loaded.examples.lengths) > 1_000_000
