"""Promise: lengths that are estimated are near what tokenizers count, nearer than characters are."""

import gzip
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.audit.read.estimated import tokens_of


@given(st.text(), st.text())
def test_more_text_is_not_fewer_tokens(a: str, b: str) -> None:
    assert 0 <= tokens_of(a) <= tokens_of(f"{a}\n{b}")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        (None, 0),
        ("The cat sat on the mat.", 7),
        ("internationalisation", 2),
        ("12 + 345", 2 + 1 + 2),
        ("a\n\n  b", 3),
        ("снег", 2),
        ("雪が降る", 3),
    ],
)
def test_words_numbers_and_signs_are_counted(text: Any, tokens: int) -> None:
    assert tokens_of(text) == tokens


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("role", "id", "source"):
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


@pytest.mark.parametrize("tokenizer", ["dolma2-100k", "olmo-50k", "qwen-152k"])
@pytest.mark.parametrize(
    "data", ["sft/sft_mix.jsonl.gz", "math/gsm8k_train.jsonl.gz", "preference/preference_mix.jsonl.gz"]
)
def test_it_is_near_what_tokenizers_count(shared: Path, data: str, tokenizer: str) -> None:
    from tokenizers import Tokenizer

    counts = Tokenizer.from_file(str(shared / "tokenizers" / tokenizer / "tokenizer.json"))
    with gzip.open(shared / "data" / data, "rt", encoding="utf-8") as rows:
        texts = ["\n".join(_texts(json.loads(row))) for row in islice(rows, 500)]
    real = sum(len(one.ids) for one in counts.encode_batch(texts, add_special_tokens=False))
    ratio = sum(map(tokens_of, texts)) / real
    assert 0.88 < ratio < 1.15
    if "gsm8k" in data:
        assert abs(ratio - 1) < abs(sum(map(len, texts)) / 4 / real - 1), "the control: a token for four characters"
