"""What is remarkable inside a text: markup of chat templates, control characters, unusual Unicode."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LONG_RUN = 10_000
"""Characters without a space: a tokenizer's worst case, and rarely language."""

INJECTION, EOS, PAD, LLAMA2 = "control-token-injection", "eos-in-content", "pad-token-in-content", "llama2-markers"

# Tokens of well-known templates. They matter whichever tokenizer is used: text that holds them was probably rendered by
# another template before, or tries to pass for one.
_KNOWN = {
    "</s>": EOS,
    "<|endoftext|>": EOS,
    "<|end_of_text|>": EOS,
    "<|eot_id|>": EOS,
    "<eos>": EOS,
    "<pad>": PAD,
    "<|pad|>": PAD,
    "<|padding|>": PAD,
    "[PAD]": PAD,
    "[INST]": LLAMA2,
    "[/INST]": LLAMA2,
    "<<SYS>>": LLAMA2,
    "<</SYS>>": LLAMA2,
    "<start_of_turn>": INJECTION,
    "<end_of_turn>": INJECTION,
    "<bos>": INJECTION,
}
_LOOKS_LIKE_A_TOKEN = re.compile(r"<[|｜][^|｜<>\s]{1,60}[|｜]>|<</?SYS>>|<[^<>\s]{1,60}>|\[/?[A-Z]{1,12}\]")  # noqa: RUF001
_PIPED = re.compile(r"<[|｜].*[|｜]>")  # noqa: RUF001

_NO_CONTROL = bytes(code for code in range(256) if (code >= 32 and code != 127) or chr(code) in "\t\n\r")
"""Bytes of UTF-8 that are no control character, if none of the C1 controls is there: those have two."""
_C1_CONTROL = re.compile(rb"\xc2[\x80-\x84\x86-\x9f]")  # U+0085 is a line separator
_UNICODE = {
    "bidi-controls": re.compile("[\u202a-\u202e\u2066-\u2069]"),
    "unicode-line-separators": re.compile("[\x85\u2028\u2029]"),
    # The last two code points of each plane, and one block, are no characters at all.
    "private-use-or-noncharacter": re.compile(
        "[\ue000-\uf8ff\ufdd0-\ufdef\U000f0000-\U0010ffff"
        + "".join(chr(plane << 16 | last) for plane in range(15) for last in (0xFFFE, 0xFFFF))
        + "]"
    ),
}

_ANY_UNICODE = re.compile("[\x85\u2028-\u202e\u2066-\u2069\ue000-\U0010ffff]")
"""Holds wherever one of them does: four ranges are searched for much faster than all of theirs."""

_BETWEEN = "\n"
"""Between texts that are looked at as one. No check finds less because of it: none looks at where a text begins or ends, and
nothing composes with a line end."""


@dataclass
class ControlTokens:
    """The tokenizer's tokens that mean something to the model: in a text they act as if the template had put them."""

    special: frozenset[str] = frozenset()
    eos: str | None = None
    pad: str | None = None
    _names: dict[str, list[str]] = field(init=False, repr=False)
    _others: re.Pattern[str] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._names = {token: [name] for token, name in _KNOWN.items()}
        for token in self.special - {self.eos, self.pad, ""}:
            self._names.setdefault(token, [INJECTION])
        for own, name in ((self.eos, EOS), (self.pad, PAD)):
            if own:
                names = self._names.setdefault(own, [])
                if name not in names:
                    names.append(name)
        others = sorted(token for token in self._names if not _LOOKS_LIKE_A_TOKEN.fullmatch(token))
        self._others = re.compile("|".join(map(re.escape, others))) if others else None

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> ControlTokens:
        """Those of a tokenizer: all that it marks as special."""
        added = tokenizer.added_tokens_decoder.values()
        special = {*map(str, tokenizer.all_special_tokens), *(token.content for token in added if token.special)}
        return cls(frozenset(special), tokenizer.eos_token, tokenizer.pad_token)

    def found_in(self, text: str) -> Iterator[str]:
        """Names of notices for the tokens that `text` holds."""
        if "<" in text or "[" in text:
            for token in set(_LOOKS_LIKE_A_TOKEN.findall(text)):
                yield from self._names.get(token, (INJECTION,) if _PIPED.fullmatch(token) else ())
        if self._others is not None:
            for token in set(self._others.findall(text)):
                yield from self._names[token]


def notices_of_texts(texts: list[str], control: ControlTokens) -> Iterator[str]:
    """Names of all that is remarkable in some text of a row, in their order, with repetitions.

    All are looked at as one first, which is cheaper than each alone: whatever one of them holds the whole holds, too.
    """
    if next(text_notices(_BETWEEN.join(texts), control), None) is not None:
        for text in texts:
            yield from text_notices(text, control)


def text_notices(text: str, control: ControlTokens) -> Iterator[str]:
    """Names of all that is remarkable in one text."""
    yield from control.found_in(text)
    if ("{{" in text and "}}" in text) or ("{%" in text and "%}" in text):
        yield "jinja-in-content"
    ascii_only = text.isascii()
    as_bytes = text.encode("utf-8", errors="surrogatepass")
    # Deleting all that is allowed is ten times as fast as searching.
    if as_bytes.translate(None, _NO_CONTROL) or (not ascii_only and _C1_CONTROL.search(as_bytes)):
        yield "control-characters"
    if len(text) >= LONG_RUN and _has_long_run(text):
        yield "no-spaces"
    if not ascii_only:
        yield from _unusual_unicode(text)


def _has_long_run(text: str) -> bool:
    # A run covers some block of half its length, and few texts have a block without a space.
    half = LONG_RUN // 2
    blocks = (text[at : at + half] for at in range(0, len(text) - half + 1, half))
    return any(block.split(None, 1) == [block] for block in blocks) and max(map(len, text.split())) >= LONG_RUN


def _unusual_unicode(text: str) -> Iterable[str]:
    if _ANY_UNICODE.search(text):
        yield from (name for name, pattern in _UNICODE.items() if pattern.search(text))
    if not unicodedata.is_normalized("NFC", text):
        yield "not-nfc"
