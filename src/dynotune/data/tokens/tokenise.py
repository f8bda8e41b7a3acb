"""Texts to token ids, a batch at a time.

transformers' `__call__` asks for offsets, attention masks and type ids of every token and builds Python lists of them.
The Rust tokenizer behind it gives the same ids without (tests compare them), in threads and without Python's lock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dynotune.data.tokens.words import WordTokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

REMEMBERED = 200_000
"""Words whose tokens a worker's tokenizer remembers, in about 25 MB. The library's own number, 10,000, is used up within a
few hundred conversations, and costs a tenth more time."""

WORTH_LOOKING_UP = 200_000
"""Characters from which on words are looked up: a quarter of a second of the library, where getting ready takes a tenth."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """ids [T] int32; offsets [T, 2]: each token's characters, where asked for and known to the tokenizer."""

    ids_T: NDArray[np.int32]
    offsets_T: NDArray[np.int64] | None = None


class BatchTokeniser:
    """Gives exactly the ids of `tokenizer(text, add_special_tokens=...)`, untruncated and unpadded."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self.tokenizer = tokenizer
        self._rust = _plain_rust_tokenizer(tokenizer)
        self.has_offsets = bool(tokenizer.is_fast)
        self.thread_safe = self._rust is not None
        self._words: WordTokens | None = None
        self._wait = WORTH_LOOKING_UP
        """Characters that the library does before words are looked up."""

    def look_words_up(self) -> None:
        """From now on, where that gives the same ids."""
        self._wait = 0
        # What it is told of its special tokens changes what it takes for one.
        if self._rust is not None and not self.tokenizer.split_special_tokens:
            self._words = WordTokens.of(self._rust)

    def _looked_up(self, texts: Sequence[str]) -> list[NDArray[np.int32]] | None:
        """The ids without special tokens of the tokenizer's own, or None where the library must do it."""
        if self._wait > 0:
            self._wait -= sum(map(len, texts))
            if self._wait > 0:
                return None
            self.look_words_up()
        if self._words is None or self.tokenizer.split_special_tokens:
            return None
        if not self._words.stands:  # it has been given tokens since
            self.look_words_up()
        return None if self._words is None else self._words.encode(texts)

    def encode(self, texts: Sequence[str], *, special: bool, offsets: bool = False) -> list[Tokens]:
        """`special`: let the tokenizer add its own BOS and EOS, as for plain text. Texts must be valid Unicode."""
        if not texts:
            return []
        offsets = offsets and self.has_offsets
        if self._rust is None:
            return self._by_call(texts, special, offsets)
        if self._rust.truncation is not None:
            self._rust.no_truncation()
        if self._rust.padding is not None:
            self._rust.no_padding()
        if self._rust.encode_special_tokens != self.tokenizer.split_special_tokens:
            self._rust.encode_special_tokens = self.tokenizer.split_special_tokens
        adds = special and self._rust.num_special_tokens_to_add(False) > 0
        if not offsets and not adds and (ids := self._looked_up(texts)) is not None:
            return [Tokens(ids_T) for ids_T in ids]
        batch = self._rust.encode_batch if offsets else self._rust.encode_batch_fast
        return [
            Tokens(np.array(e.ids, np.int32), np.array(e.offsets, np.int64).reshape(-1, 2) if offsets else None)
            for e in batch(list(texts), add_special_tokens=special)
        ]

    def _by_call(self, texts: Sequence[str], special: bool, offsets: bool) -> list[Tokens]:
        found: Any = self.tokenizer(
            list(texts), add_special_tokens=special, return_offsets_mapping=offsets, verbose=False
        )
        positions = found["offset_mapping"] if offsets else [None] * len(texts)
        return [
            Tokens(np.array(ids, np.int32), None if at is None else np.array(at, np.int64).reshape(-1, 2))
            for ids, at in zip(found["input_ids"], positions, strict=True)
        ]


def remember_words(tokenizer: "PreTrainedTokenizerBase") -> None:
    """Let a tokenizer that is ours alone, as a worker's is, look up more words instead of merging them again. Its tokens
    stay the same."""
    rust = _plain_rust_tokenizer(tokenizer)
    resize = getattr(rust.model, "_resize_cache", None) if rust is not None else None
    if resize is not None:
        resize(REMEMBERED)


def _plain_rust_tokenizer(tokenizer: "PreTrainedTokenizerBase") -> Any | None:
    """The Rust tokenizer, unless the tokenizer's class does something around it (remote code, Mistral's own, ...)."""
    from transformers import PreTrainedTokenizerBase as Base
    from transformers import PreTrainedTokenizerFast as Fast

    mine: Any = type(tokenizer)
    fast: Any = Fast
    ordinary = isinstance(tokenizer, Fast) and mine._encode_plus is fast._encode_plus and mine.__call__ is Base.__call__
    return tokenizer.backend_tokenizer if ordinary else None
