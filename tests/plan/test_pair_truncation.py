"""`max_length` means for pairs what it means in TRL, and no side loses its labels unseen."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dynotune.config.dpo import DPOConfig
from dynotune.data.account.ledger import Ledger
from dynotune.data.examples import IGNORE, Example, Examples
from dynotune.data.load import load_train_and_eval
from dynotune.data.rows import BadRow, Place
from dynotune.data.tokens.encode import Encoder
from dynotune.errors import DataError
from dynotune.plan.content import make_content
from dynotune.plan.make import NO_LABELS_LEFT, SIDES_EQUAL, rows_without_labels, trainable_spans
from tests.data.made_tokenizer import made_tokenizer
from tests.data.pairs import pair_of
from tests.data.trl_oracle import trl_prepare_pairs


def data(*pairs: tuple[list[int], list[int], list[int]]) -> tuple[Examples, Ledger]:
    """Pairs of a prompt and two answers in tokens, with their ledger."""
    documents, ledger = [], Ledger()
    for line, (prompt, *answers) in enumerate(pairs, 1):
        place = Place("f", line)
        sides = []
        for answer in answers:
            labels = np.array([IGNORE] * len(prompt) + answer, np.int32)
            sides.append(Example(np.array(prompt + answer, np.int32), labels, place))
        ledger.read(place)
        ledger.use(place, sides, 2)
        documents += sides
    return Examples.from_list(documents, per_example=2), ledger


def config(**keys: Any) -> DPOConfig:
    return DPOConfig(**keys)


@pytest.mark.parametrize(
    ("mode", "max_length"), [("keep_start", 24), ("keep_start", 40), ("keep_end", 9), ("keep_end", 40)]
)
def test_what_is_kept_is_what_trls_collator_makes(tmp_path: Path, mode: str, max_length: int) -> None:
    import torch
    from trl.trainer.dpo_trainer import DataCollatorForPreference

    rows = [pair_of("Q" * (1 + n % 7), "good answer " * (1 + n % 3), "bad " * (1 + n % 5)) for n in range(1, 20)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = made_tokenizer()
    settings = config(
        dataset_name=str(path), max_length=max_length, truncation_mode=mode, token_cache="off", disable_tqdm=True
    )
    loaded, _ = load_train_and_eval(settings, Encoder(tokenizer, settings), None)
    content = make_content(loaded.examples, settings, loaded.ledger)
    prepared = trl_prepare_pairs(tokenizer, rows, max_length, mode)
    assert len(content.rows) == 2 * len(prepared)
    collator = DataCollatorForPreference(pad_token_id=0, max_length=max_length, truncation_mode=mode)
    named = [dict(zip(("prompt_ids", "chosen_ids", "rejected_ids"), row, strict=True)) for row in prepared]
    batch = collator(named)
    for pair in range(len(prepared)):
        for side in (0, 1):
            theirs = {key: batch[key][side * len(prepared) + pair] for key in ("input_ids", "attention_mask")}
            mask = batch["completion_mask"][side * len(prepared) + pair]
            real = theirs["attention_mask"].to(torch.bool)
            row = content.rows[2 * pair + side]
            used = slice(content.spans.start[row], content.spans.end[row])
            assert loaded.examples.ids[used].tolist() == theirs["input_ids"][real].tolist()
            assert (loaded.examples.labels[used] != IGNORE).tolist() == mask[real].to(torch.bool).tolist()


def test_a_pair_that_loses_a_sides_labels_is_left_out_whole_and_counted() -> None:
    examples, ledger = data(([1, 2], [3, 4], [5]), ([1] * 6, [3], [4, 5]), ([1, 2, 3], [4, 5, 6], [7]))
    quarantined: list[BadRow] = []
    spans, rows = trainable_spans(examples, config(max_length=5), ledger, quarantined.append)
    assert rows.tolist() == [0, 1, 4, 5]
    assert spans.lengths_of(rows).tolist() == [4, 3, 5, 4]
    assert (ledger.rows_read, ledger.rows_used, ledger.skipped) == (3, 2, {NO_LABELS_LEFT: 1})
    assert (ledger.tokens_truncated, ledger.label_tokens_truncated, ledger.tokens_skipped) == (1, 1, 15)
    assert [(bad.place.line, bad.reason) for bad in quarantined] == [(2, NO_LABELS_LEFT)]
    assert "at least one side" in quarantined[0].detail
    assert "1 pair has no label token left" in (rows_without_labels(ledger, config(max_length=5)) or "")


def test_an_answer_cut_to_nothing_takes_its_whole_pair() -> None:
    """`keep_end` keeps the ends: only a side whose one label lost its predecessor would go, and none has."""
    examples, ledger = data(([1] * 6, [3], [4, 5]))
    _, rows = trainable_spans(examples, config(max_length=2, truncation_mode="keep_end"), ledger, None)
    assert rows.tolist() == [0, 1]
    with pytest.raises(DataError, match="No pair of f has a label token left"):
        trainable_spans(examples, config(max_length=6), ledger, None)


def test_a_side_that_is_cut_is_counted() -> None:
    """Also where that makes both sides equal: the pair trains, as in TRL, and it is said."""
    examples, ledger = data(([1], [2, 3, 4, 5], [2, 3, 6]), ([1], [2, 3, 4, 5], [2, 9]))
    _, rows = trainable_spans(examples, config(max_length=3), ledger, None)
    assert rows.tolist() == [0, 1, 2, 3]
    assert ledger.tokens_truncated == 2 + 1 + 2
    assert (ledger.notices[SIDES_EQUAL], ledger.places[SIDES_EQUAL]) == (1, ["f:1"])
    examples, ledger = data(([1], [2, 3, 4, 5], [2, 3, 6]))
    trainable_spans(examples, config(max_length=4), ledger, None)
    assert SIDES_EQUAL not in ledger.notices


def test_shuffling_moves_whole_pairs_as_datasets_would() -> None:
    import datasets

    examples, ledger = data(*(([n], [n, 1], [n, 2]) for n in range(30)))
    _, rows = trainable_spans(examples, config(), ledger, None, shuffle_seed=7)
    assert (rows[::2] + 1).tolist() == rows[1::2].tolist()
    theirs = datasets.Dataset.from_dict(SimpleNamespace(pair=list(range(30))).__dict__).shuffle(seed=7)["pair"]
    assert (rows[::2] // 2).tolist() == list(theirs)
