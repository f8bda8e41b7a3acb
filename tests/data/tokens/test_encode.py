"""Promise: every row becomes an example or says why not, in order, fast enough for the worst rows."""

import gzip
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AddedToken
from transformers.tokenization_python import PreTrainedTokenizer

from dynotune.config.keys.data import DataConfig
from dynotune.data.examples import IGNORE, Example
from dynotune.data.rows import BadRow, Place, Row
from dynotune.data.tokens import batches
from dynotune.data.tokens.encode import Encoder
from dynotune.data.tokens.tokenise import REMEMBERED, BatchTokeniser, remember_words
from dynotune.errors import ModelError
from tests.data.made_tokenizer import CHATML, made_tokenizer

QUESTION = {"role": "user", "content": "q"}


def text_row(text: str, line: int = 1) -> Row:
    return Row(Place("rows", line), "text", text=text)


def chat_row(*messages: dict[str, Any], **values: Any) -> Row:
    return Row(Place("rows", 1), "messages", messages=list(messages), **values)


def pair_row(prompt: str, completion: str) -> Row:
    return Row(Place("rows", 1), "prompt_completion", prompt=prompt, completion=completion)


def reason(result: Any) -> str:
    assert isinstance(result, BadRow), result
    return result.reason


def test_results_stand_in_the_order_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever kind a row is, however the batch is divided, and wherever a bad one stands."""
    monkeypatch.setattr(batches, "CHUNK_ROWS", 3)
    rows: list[Row] = []
    for i in range(20):
        kind = i % 4
        rows.append(
            [
                text_row(f"text {i}", i),
                Row(Place("rows", i), "messages", messages=[QUESTION, {"role": "assistant", "content": str(i)}]),
                Row(Place("rows", i), "prompt_completion", prompt="p", completion=str(i)),
                Row(Place("rows", i), "text", text=f"\ud800 {i}"),
            ][kind]
        )
    encoder = Encoder(made_tokenizer(), DataConfig())
    results = encoder.encode(rows)
    assert [result.place.line for result in results] == list(range(20))  # type: ignore[union-attr]
    assert [isinstance(result, BadRow) for result in results] == [i % 4 == 3 for i in range(20)]
    alone = [encoder.encode([row])[0] for row in rows]
    for one, many in zip(alone, results, strict=True):
        if isinstance(one, Example):
            assert isinstance(many, Example)
            assert one.ids_T.tolist() == many.ids_T.tolist()
            assert one.labels_T.tolist() == many.labels_T.tolist()


def test_no_rows() -> None:
    assert Encoder(made_tokenizer(), DataConfig()).encode([]) == []


def test_examples_are_not_truncated_by_the_tokenizers_own_settings() -> None:
    tokenizer = made_tokenizer()
    tokenizer.model_max_length = 4
    tokenizer("x", truncation=True, max_length=2, padding="max_length")  # leaves the Rust tokenizer truncating
    result = Encoder(tokenizer, DataConfig(max_length=2)).encode([text_row("the quick brown fox " * 5)])[0]
    assert isinstance(result, Example)
    assert len(result.ids_T) > 20


@pytest.mark.parametrize(
    ("row", "config", "name"),
    [
        (text_row(""), {}, "no-labels"),
        (pair_row("", ""), {}, "no-labels"),
        (chat_row(QUESTION), {"assistant_only_loss": True}, "no-labels"),
        (text_row("half \ud83d"), {}, "lone-surrogate"),
        (chat_row({"role": "user", "content": "\udc00"}), {}, "lone-surrogate"),
        (text_row("t"), {"assistant_only_loss": True}, "assistant-only-needs-messages"),
        (chat_row({"role": "user", "content": 5}), {}, "template-refused"),
        (chat_row(QUESTION, tools="not json"), {}, "template-refused"),
    ],
)
def test_bad_rows_have_a_reason(row: Row, config: dict[str, Any], name: str) -> None:
    assert reason(Encoder(made_tokenizer(), DataConfig(**config)).encode([row])[0]) == name


def test_an_empty_completion_still_trains_its_end_token() -> None:
    result = Encoder(made_tokenizer(), DataConfig()).encode([pair_row("prompt", "")])[0]
    assert isinstance(result, Example)
    assert (result.labels_T != IGNORE).sum() == 1


def test_a_completion_only_run_over_rows_without_completion_says_so() -> None:
    encoder = Encoder(made_tokenizer(), DataConfig(completion_only_loss=True))
    encoder.encode([text_row("text")])
    assert encoder.notices == {"completion-only-without-completion": 1}


def test_a_prompt_that_is_not_a_prefix_is_counted() -> None:
    encoder = Encoder(made_tokenizer(), DataConfig())
    encoder.encode([pair_row("the qui", "ck brown"), pair_row("the quick", " brown")])
    assert encoder.notices == {"prompt-not-a-prefix": 1}


def test_without_an_end_token_text_is_refused_with_the_remedy() -> None:
    with pytest.raises(ModelError, match="eos_token"):
        Encoder(made_tokenizer(eos=None), DataConfig()).encode([text_row("text")])


def test_a_refused_row_leaves_no_notice() -> None:
    encoder = Encoder(made_tokenizer(CHATML, eos="</s>"), DataConfig(assistant_only_loss=True))
    assert reason(encoder.encode([chat_row(QUESTION)])[0]) == "no-labels"
    assert not encoder.notices


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5), st.booleans(), st.booleans())
def test_the_rust_path_gives_what_the_tokenizer_gives(texts: list[str], special: bool, split: bool) -> None:
    tokenizer = made_tokenizer(adds_bos=True)
    tokenizer.split_special_tokens = split
    texts = [*texts, "a <|im_end|> b"]
    expected = tokenizer(texts, add_special_tokens=special, return_offsets_mapping=True)
    for offsets in (False, True):
        found = BatchTokeniser(tokenizer).encode(texts, special=special, offsets=offsets)
        assert [tokens.ids_T.tolist() for tokens in found] == expected["input_ids"]
        if offsets:
            assert [list(map(tuple, t.offsets_T.tolist())) for t in found] == expected["offset_mapping"]  # type: ignore[union-attr]


class SlowTokenizer(PreTrainedTokenizer):
    """One token a character, in Python, without offsets."""

    def __init__(self, **kwargs: Any) -> None:
        self._ids = {chr(c): c - 9 for c in range(9, 127)}
        super().__init__(**kwargs)
        self.add_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>")], special_tokens=True)

    @property
    def vocab_size(self) -> int:
        return len(self._ids)

    def get_vocab(self) -> dict[str, int]:
        return {**self._ids, **self.added_tokens_encoder}

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        return list(text)

    def _convert_token_to_id(self, token: str) -> int:
        return self._ids[token]

    def _convert_id_to_token(self, index: int) -> str:
        return chr(index + 9)


def test_a_tokenizer_without_offsets_trains_the_same_text() -> None:
    tokenizer = SlowTokenizer(eos_token="~", unk_token="?")
    tokenizer.chat_template = CHATML
    assert not tokenizer.is_fast
    messages = [QUESTION, {"role": "assistant", "content": "one"}, QUESTION, {"role": "assistant", "content": "two"}]
    encoder = Encoder(tokenizer, DataConfig(assistant_only_loss=True))
    result = encoder.encode([chat_row(*messages)])[0]
    assert isinstance(result, Example)
    kept = [tokenizer.convert_ids_to_tokens(int(i)) for i in result.labels_T[result.labels_T != IGNORE]]
    assert "".join(kept) == "one<|im_end|>\ntwo<|im_end|>\n"
    expected = tokenizer.apply_chat_template(messages, return_dict=True)["input_ids"]
    assert result.ids_T.tolist() == expected


def test_rows_of_a_million_characters_take_seconds(shared: Path) -> None:
    """Without a space, of emoji with joiners, of 20,000 turns: rows that are quadratic if anything here is."""
    from transformers import AutoTokenizer

    with gzip.open(shared / "data" / "nasty" / "huge_row.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [
            Row(Place("huge", n), "messages", messages=json.loads(line)["messages"]) for n, line in enumerate(lines)
        ]
    tokenizer = AutoTokenizer.from_pretrained(shared / "tokenizers" / "qwen-152k")
    began = time.process_time()  # of this process: a busy machine must not fail it
    results = Encoder(tokenizer, DataConfig(assistant_only_loss=True)).encode(rows)
    assert all(isinstance(result, Example) for result in results)
    assert time.process_time() - began < 60
    turns = results[5]
    assert isinstance(turns, Example)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert np.count_nonzero(turns.labels_T == end) == 10_000


def test_a_tokenizer_that_remembers_more_words_gives_the_same_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"{'ab' * (n % 7)}{n} c{n * n}" for n in range(500)]
    texts = [" ".join(words), " ".join(reversed(words))]
    plain, ours = made_tokenizer(), made_tokenizer()
    capacities: list[int] = []
    kind = type(ours.backend_tokenizer.model)
    real = kind._resize_cache
    monkeypatch.setattr(kind, "_resize_cache", lambda self, n: capacities.append(n) or real(self, n), raising=False)
    remember_words(ours)
    assert capacities == [REMEMBERED]
    assert ours(texts)["input_ids"] == plain(texts)["input_ids"]


def test_a_tokenizer_that_is_not_of_rust_remembers_what_it_does() -> None:
    class Own(type(made_tokenizer())):  # type: ignore[misc]
        def __call__(self, *given: object, **named: object) -> object:
            return super().__call__(*given, **named)

    tokenizer = made_tokenizer()
    tokenizer.__class__ = Own
    remember_words(tokenizer)
    assert tokenizer("a b")["input_ids"] == made_tokenizer()("a b")["input_ids"]
