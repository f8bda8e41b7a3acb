"""Promise: pre-tokenised rows are loaded as they are; what their maker meant and did not write is found."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.config.keys.data import DataConfig
from dynotune.data.examples import IGNORE, Example
from dynotune.data.rows import BadRow, Place, Row
from dynotune.data.tokens.boundaries import CUMULATIVE, LENGTHS, PER_TOKEN_IDS
from dynotune.data.tokens.encode import Encoder
from tests.data.made_tokenizer import CHATML, made_tokenizer
from tests.data.trl_oracle import trl_prepare

EOS, BOS, PAD = 4, 0, 2  # <|im_end|>, <s>, <pad> of the made tokenizer
VOCABULARY = len(made_tokenizer())


def encode(
    template: str | None = None, config: dict[str, Any] | None = None, **columns: Any
) -> tuple[Any, dict[str, int]]:
    encoder = Encoder(made_tokenizer(template), DataConfig(**(config or {})))
    result = encoder.encode([Row(Place("rows", 3), "tokens", tokens=columns)])[0]
    return result, dict(encoder.notices)


def documents(result: Any) -> list[list[int]]:
    assert not isinstance(result, BadRow), result
    return [example.ids_T.tolist() for example in ([result] if isinstance(result, Example) else result)]


def test_special_ids_of_the_made_tokenizer() -> None:
    tokenizer = made_tokenizer()
    assert (tokenizer.eos_token_id, tokenizer.bos_token_id, tokenizer.pad_token_id) == (EOS, BOS, PAD)


def test_plain_ids_become_labels_too() -> None:
    result, notices = encode(input_ids=[20, 21, 22])
    assert isinstance(result, Example)
    assert result.ids_T.tolist() == result.labels_T.tolist() == [20, 21, 22]
    assert result.place == Place("rows", 3)
    assert notices == {}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(2, 6), min_size=1, max_size=5), st.integers(0, 3), st.integers(0, 3), st.data())
def test_every_way_to_write_boundaries_gives_the_same_documents(
    lengths: list[int], left: int, right: int, data: st.DataObject
) -> None:
    total = sum(lengths)
    body = data.draw(st.lists(st.integers(10, VOCABULARY - 1), min_size=total, max_size=total))
    expected, position = [], 0
    for length in lengths:
        expected.append(body[position : position + length])
        position += length
    positions = [p for length in lengths for p in range(length)]
    numbers = [n for n, length in enumerate(lengths, 1) for _ in range(length)]
    cumulative = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    ways: list[dict[str, Any]] = [
        {"position_ids": positions},
        *({name: lengths} for name in LENGTHS),
        *({name: cumulative} for name in CUMULATIVE),
        *({name: numbers} for name in PER_TOKEN_IDS),
        {"position_ids": positions, "seq_lengths": lengths, "document_ids": numbers},
        {"attention_mask": numbers},
    ]
    for way in ways:
        result, notices = encode(input_ids=body, **way)
        assert documents(result) == expected, way
        assert notices.get("packed-row-split", 0) == (len(lengths) > 1)
    pad_left, pad_right = [PAD] * left, [PAD] * right
    padded = pad_left + body + pad_right
    mask = [0] * left + [1] * total + [0] * right
    result, notices = encode(input_ids=padded, attention_mask=mask, position_ids=[1] * left + positions + [1] * right)
    assert documents(result) == expected
    assert notices.get("padding-stripped", 0) == (left + right > 0)


@pytest.mark.parametrize(
    ("reason", "columns"),
    [
        ("empty-row", {"input_ids": []}),
        ("empty-row", {"input_ids": [20, 21], "attention_mask": [0, 0]}),
        ("not-token-ids", {"input_ids": [[20, 21]]}),
        ("not-token-ids", {"input_ids": [20.5, 21.0]}),
        ("not-token-ids", {"input_ids": "20 21"}),
        ("not-token-ids", {"input_ids": [20, None]}),
        ("not-token-ids", {"input_ids": [True, False]}),
        ("not-token-ids", {"input_ids": [[20], [21, 22]]}),
        ("id-out-of-vocabulary", {"input_ids": [20, VOCABULARY]}),
        ("id-out-of-vocabulary", {"input_ids": [20, -1]}),
        ("lengths-differ", {"input_ids": [20, 21], "labels": [20]}),
        ("lengths-differ", {"input_ids": [20, 21], "attention_mask": [1, 1, 1]}),
        ("lengths-differ", {"input_ids": [20, 21], "document_ids": [1, 1, 1]}),
        ("label-out-of-vocabulary", {"input_ids": [20, 21], "labels": [-1, 21]}),
        ("label-out-of-vocabulary", {"input_ids": [20, 21], "labels": [IGNORE, VOCABULARY]}),
        ("labels-shifted", {"input_ids": [20, 21, 22], "labels": [21, 22, IGNORE]}),
        ("no-labels", {"input_ids": [20, 21], "labels": [IGNORE, IGNORE]}),
        ("no-labels", {"input_ids": [20, 21], "labels": [20, IGNORE]}),
        ("no-labels", {"input_ids": [20]}),
        ("attention-mask-with-holes", {"input_ids": [20, 21, 22], "attention_mask": [1, 0, 1]}),
        ("boundaries-disagree", {"input_ids": [20, 21, 22], "seq_lengths": [1, 2], "position_ids": [0, 1, 0]}),
        ("boundaries-do-not-fit", {"input_ids": [20, 21, 22], "seq_lengths": [1, 1]}),
        ("boundaries-do-not-fit", {"input_ids": [20, 21, 22], "cu_seqlens": [0, 3, 2]}),
        ("position-ids-jump", {"input_ids": [20, 21, 22], "position_ids": [0, 1, 5]}),
    ],
)
def test_rows_that_cannot_be_used_say_why(reason: str, columns: dict[str, Any]) -> None:
    result, notices = encode(**columns)
    assert isinstance(result, BadRow)
    assert result.reason == reason
    assert result.detail
    assert notices == {}


def test_labels_that_leak_over_a_boundary_are_reported_and_carry_no_loss() -> None:
    ids = [20, 21, 22, 23]
    result, notices = encode(input_ids=ids, labels=ids, seq_lengths=[2, 2])
    assert notices == {"packed-row-split": 1, "label-crosses-boundary": 1}
    assert documents(result) == [[20, 21], [22, 23]]
    _, notices = encode(input_ids=ids, labels=[20, 21, IGNORE, 23], seq_lengths=[2, 2])
    assert notices == {"packed-row-split": 1}


def test_packed_rows_without_boundaries_are_reported() -> None:
    packed = "packed-without-boundaries"
    assert packed in encode(input_ids=[20, 21, EOS, 22, 23, EOS])[1]
    assert packed in encode(input_ids=[BOS, 21, 22, BOS, 22, 23])[1]
    assert packed in encode(input_ids=[20, EOS, 22, EOS], attention_mask=[1] * 4, position_ids=[0, 1, 2, 3])[1]
    assert packed not in encode(input_ids=[20, 21, EOS, EOS])[1]
    assert packed not in encode(input_ids=[20, 21, EOS, 22, 23], seq_lengths=[3, 2])[1]


def test_turns_of_a_chat_that_end_with_the_end_token_are_no_documents() -> None:
    tokenizer = made_tokenizer(CHATML)
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    one = tokenizer.apply_chat_template(turns * 2)["input_ids"]
    assert "packed-without-boundaries" not in encode(CHATML, input_ids=one)[1]
    packed = [t for t in one if t != one[-1]]  # without the line break after it, the next turn looks like a beginning
    assert "packed-without-boundaries" in encode(CHATML, input_ids=packed)[1]


def test_a_document_without_labels_is_counted() -> None:
    result, notices = encode(input_ids=[20, 21, 22, 23], labels=[20, 21, IGNORE, IGNORE], seq_lengths=[2, 2])
    assert documents(result) == [[20, 21]]
    assert notices == {"packed-row-split": 1, "document-without-labels": 1}


def test_labels_other_than_the_ids_train_as_given_and_are_reported() -> None:
    result, notices = encode(input_ids=[20, 21, 22], labels=[20, 30, 22])
    assert result.labels_T.tolist() == [20, 30, 22]
    assert notices == {"labels-differ-from-ids": 1}


@pytest.mark.parametrize("completion_only", [None, True, False])
def test_mask_columns_as_in_trl(completion_only: bool | None) -> None:
    columns = {
        "input_ids": [20, 21, 22, 23, 24],
        "completion_mask": [0, 0, 1, 1, 1],
        "assistant_masks": [0, 1, 1, 1, 0],
    }
    result, notices = encode(config={"completion_only_loss": completion_only}, **columns)
    theirs = trl_prepare(made_tokenizer(), [columns], completion_only=completion_only or False)[0]
    assert (result.ids_T.tolist(), result.labels_T.tolist()) == theirs
    assert ("completion-mask-not-applied" in notices) == (not completion_only)


def test_padding_that_no_mask_marks_is_reported() -> None:
    assert "padding-without-attention-mask" in encode(input_ids=[20, 21, PAD, PAD])[1]
