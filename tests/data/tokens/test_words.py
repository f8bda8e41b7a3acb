"""Promise: words that are looked up have the ids that the library gives them, whatever stands beside them."""

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from dynotune.data.tokens import words
from dynotune.data.tokens.tokenise import BatchTokeniser
from dynotune.data.tokens.words import WordTokens, examination, lasting
from tests.data.made_tokenizer import made_tokenizer


def split_by(pattern: str, **options: Any) -> Any:
    how = {"behavior": "isolated", **options}
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), **how),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def byte_level(pattern: str, added: tuple[AddedToken, ...] = ()) -> Tokenizer:
    """A tokenizer that merges inside of words, so that every edge of a word shows in the ids."""
    made: Tokenizer = Tokenizer.from_str(made_tokenizer().backend_tokenizer.to_str())
    if pattern != words._GPT_2:
        made.pre_tokenizer = split_by(pattern)
    made.normalizer = normalizers.NFC()
    made.add_tokens(list(added))
    return made


SPACED = (
    AddedToken("  ", normalized=True),
    AddedToken("    ", normalized=True),
    AddedToken("<x>", normalized=False),
    AddedToken("<x>y", normalized=False),
    AddedToken("|||A|||", normalized=True),
)
PATTERNS = pytest.mark.parametrize("pattern", words._PATTERNS, ids=["gpt2", "cl100k", "qwen2"])


def differing(rust: Tokenizer, texts: list[str], mine: WordTokens) -> list[str]:
    """Texts whose words or ids the library has otherwise."""
    theirs = rust.encode_batch_fast(texts, add_special_tokens=False)
    return [
        text
        for text, ids, one in zip(texts, mine.encode(texts), theirs, strict=True)
        if not np.array_equal(ids, one.ids) or not same_words(rust, text, mine)
    ]


def same_words(rust: Tokenizer, text: str, mine: WordTokens) -> bool:
    words_there = [text[start:end] for _, (start, end) in rust.pre_tokenizer.pre_tokenize_str(text)]
    return mine.words_of(text) in (None, words_there)


def taken(rust: Tokenizer) -> WordTokens:
    mine = WordTokens.of(rust)
    assert mine is not None
    return mine


@PATTERNS
def test_every_three_kinds_of_characters(pattern: str) -> None:
    rust = byte_level(pattern, SPACED)
    kinds = [*" \n\r\t\x1c'sLa01!", "é", "Ж", "中", "“", "½", "\u00a0", "\u2028", "\u200b", "\u017f", "e\u0301", "  "]
    texts = ["".join(some) for some in itertools.product(kinds, repeat=3)]
    texts += ["".join(some) for some in itertools.product(*[[" ", "\n", "a", "1", "'", "ll", "."]] * 4)]
    assert differing(rust, texts, taken(rust)) == []


@PATTERNS
def test_every_character(pattern: str) -> None:
    """Of all planes: those that the library must do are given to it."""
    rust = byte_level(pattern)
    every = [chr(code) for code in range(0x3400) if not 0xD800 <= code < 0xE000]
    every += [chr(code) for code in range(0x4E00, 0x9FA6, 97)] + ["\uac00", "\ue000", "\ufeff", "\U0001f642", "\u9fa6"]
    texts = [f"{c}a{c}{c} {c}1{c}'s" for c in every]
    assert differing(rust, texts, taken(rust)) == []


@PATTERNS
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=5))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_text(pattern: str, texts: list[str]) -> None:
    rust = byte_level(pattern, SPACED)
    assert differing(rust, texts, WordTokens(rust, pattern)) == []


def test_a_character_that_is_taken_wrongly_is_found_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: with `é` for no letter, or with another pattern, the examination ends the shortcut."""
    rust = byte_level(words._CL100K)
    right = lasting()
    wrong = right._replace(letters=right.letters.replace("é", ""))
    monkeypatch.setattr(words, "lasting", lambda: wrong)
    assert WordTokens.of(rust) is None
    monkeypatch.setattr(words, "lasting", lambda: right)
    assert WordTokens.of(rust) is not None
    monkeypatch.setattr(words, "_pattern_of", lambda rust: words._PATTERNS[2])
    assert WordTokens.of(rust) is None


@pytest.mark.parametrize("wrong", ["letters", "numbers", "spaces"])
def test_the_examination_sees_each_class(wrong: str) -> None:
    rust = byte_level(words._PATTERNS[2])
    mine = WordTokens(rust, words._PATTERNS[2])
    characters = words.ASCII._replace(**{wrong: "\x01"})
    mine._ascii = words.re.compile(words._translated(words._PATTERNS[2], characters)).findall
    assert differing(rust, list(examination([])), mine)


def changed(change: str) -> Tokenizer:
    rust = byte_level(words._CL100K)
    if change == "prefix space":
        rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    elif change == "pattern":
        rust.pre_tokenizer = split_by(words._CL100K + "|x")
    elif change == "merged":
        rust.pre_tokenizer = split_by(words._CL100K, behavior="merged_with_next")
    elif change == "normalizer":
        rust.normalizer = normalizers.Lowercase()
    elif change == "stripping":
        rust.add_tokens([AddedToken("<m>", lstrip=True)])
    elif change == "single word":
        rust.add_tokens([AddedToken("mask", single_word=True)])
    elif change == "model":
        rust.model = models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")
    elif change == "dropout":
        rust.model.dropout = 0.5
    elif change == "none":
        rust.pre_tokenizer = None
    elif change == "empty":
        rust.pre_tokenizer = pre_tokenizers.Sequence([])
    elif change == "made in Python":
        rust.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(object())
    elif change == "normalizer made in Python":
        rust.normalizer = normalizers.Normalizer.custom(object())
    elif change == "token that is normalised":
        rust.normalizer = normalizers.NFC()
        rust.add_tokens([AddedToken("cafe\u0301", normalized=True)])
    elif change == "many words":
        rust.add_tokens([AddedToken(f"word{number}") for number in range(words.MOST_ADDED + 1)])
    elif change == "nothing":
        rust.normalizer = normalizers.NFC()
        rust.add_tokens([AddedToken("caf\u00e9", normalized=True), AddedToken("<m>")])
    return rust


@pytest.mark.parametrize(
    "change",
    [
        *("prefix space", "pattern", "merged", "normalizer", "stripping", "single word", "model", "dropout", "none"),
        *("empty", "made in Python", "normalizer made in Python", "token that is normalised", "many words"),
    ],
)
def test_a_tokenizer_that_does_something_else_is_left_to_the_library(change: str) -> None:
    assert WordTokens.of(changed(change)) is None
    assert WordTokens.of(changed("nothing")) is not None


def test_remembering_begins_anew_and_long_words_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "REMEMBERED", 50)
    rust = byte_level(words._CL100K)
    mine = taken(rust)
    known: Any = mine._ids.__self__  # type: ignore[attr-defined]
    for start in range(0, 1000, 40):
        text = " ".join(f"w{chr(97 + number % 26)}{chr(97 + number // 26 % 26)}" for number in range(start, start + 40))
        assert differing(rust, [text], mine) == []
        assert len(known) <= 50
    assert differing(rust, ["a" * 5000], mine) == []
    assert "a" * 5000 not in known


def test_getting_ready_starts_no_threads() -> None:
    """A batch of the library may, and then this process could not be copied for its workers."""

    class WithoutBatches:
        def __getattr__(self, name: str) -> Any:
            assert not name.startswith("encode_batch"), name
            return getattr(rust, name)

    rust = byte_level(words._CL100K, SPACED)
    mine = WordTokens.of(WithoutBatches())
    assert mine is not None
    with pytest.raises(AssertionError, match="encode_batch_fast"):
        mine.encode(["\U0001f642"])  # the control: such text is the library's


def encoded(tokeniser: BatchTokeniser, texts: list[str], **options: Any) -> list[list[int]]:
    return [one.ids_T.tolist() for one in tokeniser.encode(texts, **{"special": False, **options})]


def test_words_are_looked_up_where_there_is_much_text() -> None:
    tokeniser = BatchTokeniser(made_tokenizer())
    before = encoded(tokeniser, ["two plus two", ""])
    assert tokeniser._words is None
    tokeniser.look_words_up()
    assert tokeniser._words is not None
    assert encoded(tokeniser, ["two plus two", ""]) == before
    waiting = BatchTokeniser(made_tokenizer())
    waiting.encode(["word " * 100_000], special=False)
    assert waiting._words is not None


def test_tokens_added_later_and_split_ones_are_seen() -> None:
    tokenizer = made_tokenizer()
    tokeniser = BatchTokeniser(tokenizer)
    tokeniser.look_words_up()
    texts = ["a<|im_end|>b", "quick brown fox"]
    plain = encoded(tokeniser, texts)
    tokenizer.add_tokens(["brown"])
    after = encoded(tokeniser, texts)
    assert after != plain
    assert after == [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    known = next(word for word in ("qu", "th", "er", "in", "o") if word in tokenizer.get_vocab())
    tokenizer.add_special_tokens({"pad_token": known})  # as many tokens as before
    assert encoded(tokeniser, [f"a{known}b", *texts]) == [
        tokenizer(text, add_special_tokens=False)["input_ids"] for text in (f"a{known}b", *texts)
    ]
    tokenizer.split_special_tokens = True
    split = encoded(tokeniser, texts)
    assert split != after
    assert split == [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


def test_tokens_that_the_tokenizer_adds_to_plain_text_are_there() -> None:
    tokenizer = made_tokenizer(adds_bos=True)
    tokeniser = BatchTokeniser(tokenizer)
    tokeniser.look_words_up()
    assert tokeniser._words is not None
    (ids,) = encoded(tokeniser, ["two plus two"], special=True)
    assert ids == tokenizer("two plus two")["input_ids"]
    assert ids[0] == tokenizer.bos_token_id
    trimming = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    trimming.post_processor = processors.ByteLevel(trim_offsets=True)
    assert WordTokens.of(trimming) is not None


@pytest.mark.parametrize("name", ["qwen-152k", "dolma2-100k", "olmo-50k"])
def test_real_tokenizers_and_real_text(shared: Path, name: str) -> None:
    rust = Tokenizer.from_file(str(shared / "tokenizers" / name / "tokenizer.json"))
    mine = taken(rust)
    for file, rows in (("sft/sft_mix", 300), ("preference/preference_mix", 150)):
        with gzip.open(shared / f"data/{file}.jsonl.gz", "rt") as lines:
            some = [json.loads(line) for line in itertools.islice(lines, rows)]
        texts = [f"<|im_start|>{json.dumps(row, ensure_ascii=False)}<|im_end|>" for row in some]
        texts += [turn["content"] or "" for row in some for turn in row.get("messages", [])]
        assert differing(rust, texts, mine) == []
