"""Texts to token ids by looking words up: the ids of the Rust tokenizer, in a quarter of its time.

A byte-level tokenizer cuts a text at its added tokens and then, by a pattern, into words; tokens never reach over the edge
of a word. So a text's ids are those of its words side by side, and most words were met before. `tokenizers` remembers words,
too, but makes an object with strings for each word and each token on the way, which is most of what it costs. Here Python's
`re` finds the words, and a dictionary has each one's ids as bytes, which are joined.

The tokenizer's own model gives the ids of a new word. What could differ is where words end: in what Unicode calls a letter,
which changes with its version, and in normalisation. So only patterns known here are taken, and only text of characters that
are the same in all versions from 3.2 on and that normalisation leaves alone; other text is the library's. Before a tokenizer
is used in this way, it is compared with the library on a text that holds these characters beside one another.
"""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

REMEMBERED = 200_000
"""Words. With their ids usual ones take up to 40 MB a process, and made-up ones of the longest that are remembered 130 MB;
then remembering begins anew."""

LONGEST = 32
"""Characters of a word that is remembered: longer ones are rarely met again, and would let the worst text take 400 MB."""

MOST_ADDED = 100
"""Added tokens that begin otherwise than by `<`: Python's `re` tries one after the other at each place, and from about 200
on the library is faster."""

_GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PATTERNS = (_GPT_2, _CL100K, _CL100K.replace("{1,3}", ""))
"""GPT-2's; those of cl100k and Llama 3; and of Qwen 2, where each digit is a word. All of a text belongs to some word."""

_NAME = re.compile(r"\[\^?[^\]]*\]|\\p\{L\}|\\p\{N\}|\\s|\\S")
"""A class of characters, or a name outside of one."""

_BLOCKS = (
    *((0x80, 0x250), (0x370, 0x400), (0x400, 0x460), (0x5D0, 0x5EB)),  # Latin, Greek, Cyrillic, Hebrew
    *((0x2000, 0x2070), (0x20A0, 0x20B2), (0x2100, 0x2300), (0x2500, 0x2600), (0x3000, 0x3100)),  # signs, Kana
)
_IDEOGRAPHS = "\u4e00-\u9fa5"
"""Letters, all of them, since Unicode 1.1."""


class Characters(NamedTuple):
    """Characters as the inside of a class of a regular expression."""

    letters: str
    numbers: str
    spaces: str
    all: str


ASCII = Characters("A-Za-z", "0-9", "\t-\r ", "\0-\x7f")


@cache
def lasting() -> Characters:
    """ASCII, and characters that every version of Unicode from 3.2 on has in the same class, that normalisation changes
    neither alone nor beside each other, and that are no other case of an ASCII letter (the long s is one of s)."""
    then, now = unicodedata.ucd_3_2_0, unicodedata
    kinds: dict[str, list[str]] = {"L": [], "N": [], "Z": [], "P": [], "S": []}
    for first, end in _BLOCKS:
        for character in map(chr, range(first, end)):
            kind = now.category(character)
            plain = now.normalize("NFC", character) == character and not _has_ascii(character.casefold())
            if kind[0] in kinds and kind == then.category(character) and plain:
                kinds[kind[0]].append(character)
    letters, numbers, spaces = ("".join(kinds[kind]) for kind in "LNZ")
    letters += _IDEOGRAPHS
    signs = "".join(kinds["P"] + kinds["S"])
    every = ASCII.all + letters + numbers + spaces + signs
    return Characters(ASCII.letters + letters, ASCII.numbers + numbers, ASCII.spaces + spaces, every)


def _has_ascii(text: str) -> bool:
    return any(character.isascii() for character in text)


class _Words(dict[str, bytes]):
    """The ids of each word that was met, little-endian int32."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        pairs = zip(_byte_level_bytes(), _byte_level_characters(), strict=True)
        self._byte_level = dict(pairs)

    def __missing__(self, word: str) -> bytes:
        as_bytes = word.encode().decode("latin-1")
        ids = _bytes_of([token.id for token in self.model.tokenize(as_bytes.translate(self._byte_level))])
        if len(word) <= LONGEST:
            if len(self) >= REMEMBERED:
                self.clear()
            self[word] = ids
        return ids


class WordTokens:
    """Token ids of a tokenizer, word by word. `of` says whether it is one that can be taken so."""

    def __init__(self, rust: Any, pattern: str) -> None:
        self.rust = rust
        added = rust.get_added_tokens_decoder()
        self._known = _told_of(rust)
        self._added = {token.content: _bytes_of([number]) for number, token in added.items()}
        # The library looks for the second kind in what is left between those of the first.
        self._first, self._second = (
            _one_of([token.content for token in added.values() if token.normalized == normalized])
            for normalized in (False, True)
        )
        self._ascii, self._wide = (
            re.compile(_translated(pattern, characters)).findall for characters in (ASCII, lasting())
        )
        self._beyond = re.compile(f"[^{lasting().all}]").search
        self._ids = _Words(rust.model).__getitem__

    @classmethod
    def of(cls, rust: Any) -> Self | None:
        """For a `tokenizers.Tokenizer`, or None where the library must do all of it."""
        pattern = _pattern_of(rust)
        added = rust.get_added_tokens_decoder().values()
        if pattern is None or any(token.lstrip or token.rstrip or token.single_word for token in added):
            return None
        if sum(not token.content.startswith("<") for token in added) > MOST_ADDED:
            return None
        normal = rust.normalizer.normalize_str if rust.normalizer is not None else str
        if any(token.normalized and normal(token.content) != token.content for token in added):
            return None  # the library looks for what normalisation makes of it
        made = cls(rust, pattern)
        texts = examination([token.content for token in added])
        return made if all(made.agrees(text) for text in texts) else None

    def agrees(self, text: str) -> bool:
        """Whether the library finds the same words, and the same ids with added tokens between them."""
        words = self.words_of(text)
        if words is not None:
            # Ids alone would not tell where words end: few characters are merged with what stands beside them.
            found = self.rust.pre_tokenizer.pre_tokenize_str(text)
            if words != [text[start:end] for _, (start, end) in found]:
                return False
        return np.array_equal(self.encode([text], in_threads=False)[0], self._alone(text).ids)

    def words_of(self, text: str) -> list[str] | None:
        """The words of a text without added tokens, or None where the library must find them."""
        if text.isascii():
            return self._ascii(text)
        return None if self._beyond(text) else self._wide(text)

    @property
    def stands(self) -> bool:
        """Whether the tokenizer has the tokens that it had, with the flags that they had."""
        return bool(_told_of(self.rust) == self._known)

    def _together(self, texts: list[str]) -> Any:
        return self.rust.encode_batch_fast(texts, add_special_tokens=False)

    def _alone(self, text: str) -> Any:
        """What the library makes of a text, without its threads: a process that has some cannot be copied."""
        return self.rust.encode(text, add_special_tokens=False)

    def encode(self, texts: Sequence[str], *, in_threads: bool = True) -> list[NDArray[np.int32]]:
        """The ids [T] of each text, without the tokens that a tokenizer adds to plain text.

        in_threads: whether the library may start threads for what it must do."""
        parts_of: list[list[bytes]] = []
        others: list[str] = []
        places: list[tuple[list[bytes], int]] = []
        for text in texts:
            parts: list[bytes] = []
            for part, is_added in _pieces(self._first, text):
                if is_added:
                    parts.append(self._added[part])
                elif part.isascii():
                    self._look_up(part, self._ascii, parts)
                elif self._beyond(part):
                    places.append((parts, len(parts)))
                    parts.append(b"")
                    others.append(part)
                else:
                    self._look_up(part, self._wide, parts)
            parts_of.append(parts)
        if others:
            encoded = self._together(others) if in_threads else map(self._alone, others)
            for (parts, at), one in zip(places, encoded, strict=True):
                parts[at] = _bytes_of(one.ids)
        return [
            np.frombuffer(bytearray().join(parts), "<i4") for parts in parts_of
        ]  # of bytes it could not be written to

    def _look_up(self, text: str, words: Callable[[str], list[str]], parts: list[bytes]) -> None:
        if self._second is None:
            parts += map(self._ids, words(text))
            return
        for part, is_added in _pieces(self._second, text):
            if is_added:
                parts.append(self._added[part])
            else:
                parts += map(self._ids, words(part))


def _told_of(rust: Any) -> tuple[Any, ...]:
    """Of its tokens, and of what is done before them."""
    added = rust.get_added_tokens_decoder().items()
    flags = {(n, t.content, t.normalized, t.special, t.lstrip, t.rstrip, t.single_word) for n, t in added}
    return rust.get_vocab_size(True), flags, type(rust.normalizer), type(rust.pre_tokenizer)


def examination(added: Sequence[str]) -> Iterator[str]:
    """Texts that hold every kind of character beside every other, and each lasting character in two places."""
    signs = [*" \t\n\r\v\f\x1c\x85\0'!<|>-_", "\u017f", "\u00a0", "\u3000", "\u201c", "\u2026", "  ", "\r\n"]
    kinds = [*signs, *"sSTrReEvVmMlLdDaZ0195", *"éßŉЖ中あ½²"]
    chance = random.Random(0)  # noqa: S311  (a text of the same characters each time)
    for length in (3, 40) * 100:
        yield "".join(chance.choice(kinds) for _ in range(length))
    for _ in range(20):
        yield "".join(chance.choice([*kinds[:30], *added[:100]]) for _ in range(40))
    every = [chr(code) for first, end in ((0, 0x80), *_BLOCKS, (0x4E00, 0x4E20)) for code in range(first, end)]
    for at in range(0, len(every), 64):
        yield "".join(f"{character}a{character}{character} {character}1" for character in every[at : at + 64])


def _pattern_of(rust: Any) -> str | None:
    """The pattern by which a byte-level tokenizer finds words, where it is a known one."""
    if type(rust.model).__name__ != "BPE" or rust.model.dropout or rust.pre_tokenizer is None:
        return None
    try:
        normalizer = None if rust.normalizer is None else json.loads(rust.normalizer.__getstate__())
        told = json.loads(rust.pre_tokenizer.__getstate__())
    except Exception:  # noqa: BLE001  (one that is made in Python; the library raises nothing narrower)
        return None
    if normalizer not in (None, {"type": "NFC"}):
        return None
    steps = told["pretokenizers"] if told["type"] == "Sequence" else [told]
    if not steps or steps[-1]["type"] != "ByteLevel" or steps[-1]["add_prefix_space"]:
        return None
    if len(steps) == 1:
        return _GPT_2 if steps[0]["use_regex"] else None
    if len(steps) > 2 or steps[0]["type"] != "Split" or steps[1]["use_regex"]:
        return None
    pattern = steps[0]["pattern"].get("Regex")
    keeps = (steps[0]["behavior"], steps[0]["invert"]) in (("Isolated", False), ("Removed", True))
    return pattern if keeps and pattern in _PATTERNS else None


def _translated(pattern: str, characters: Characters) -> str:
    """The pattern with its classes spelled out."""
    inside = {r"\p{L}": characters.letters, r"\p{N}": characters.numbers, r"\s": characters.spaces}

    def spelled(found: re.Match[str]) -> str:
        text = found.group()
        if text == r"\S":
            return f"[^{characters.spaces}]"
        if not text.startswith("["):
            return f"[{inside[text]}]"
        for name, members in inside.items():
            text = text.replace(name, members)
        return text

    return _NAME.sub(spelled, pattern)


def _one_of(contents: list[str]) -> re.Pattern[str] | None:
    """Finds the leftmost of these, and of those that begin there the longest, as the library does."""
    longest_first = sorted((content for content in contents if content), key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None


def _pieces(added: re.Pattern[str] | None, text: str) -> Iterator[tuple[str, bool]]:
    """What stands between added tokens, and the added tokens."""
    if added is None:
        yield text, False
        return
    for number, part in enumerate(added.split(text)):
        if part:
            yield part, number % 2 == 1


def _bytes_of(ids: list[int]) -> bytes:
    return np.array(ids, "<i4").tobytes()


def _byte_level_bytes() -> list[int]:
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return shown + [byte for byte in range(256) if byte not in set(shown)]


def _byte_level_characters() -> str:
    """GPT-2's characters for bytes: those that can be seen stand for themselves, the others for 256 and up."""
    shown = _byte_level_bytes()[:188]
    return "".join(map(chr, [*shown, *range(256, 256 + 256 - len(shown))]))
