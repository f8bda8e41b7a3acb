"""Which tokens of a rendered conversation carry loss.

Assistant-only loss needs the spans of text that the model generates. Two sources give them:

- the template's `{% generation %}` blocks;
- without those, a *verified prefix difference*: the answer of turn k is what the whole conversation holds between
  `messages[:k]` rendered with the generation prompt and `messages[:k + 1]`. Each of these renderings must be a prefix
  of the whole one, character by character; where one is not, the row is refused, never guessed.

Long conversations would need as many renderings of the whole as they have turns. There each message is rendered alone,
after a short fixed beginning, and the pieces must join to exactly the whole rendering. If they do not, the first way is
taken while it is affordable.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynotune.data.rows import Message
from dynotune.data.templates.template import REFUSALS, ChatTemplate, Span

Mask = NDArray[np.bool_]

FEW_MESSAGES = 8
"""Up to here the prefixes themselves are rendered."""

MOST_CHARACTERS = 20_000_000
"""A row's prefixes are rendered while their text stays below this."""

REMEDY = (
    "Give a training template with `{% generation %}` blocks around the assistant's text through `chat_template_path`,"
    " or set `assistant_only_loss: false` (loss on everything, or on the completion of prompt/completion rows)."
)


class NotVerified(Exception):  # noqa: N818  (an outcome of a check, turned into a BadRow or TemplateError by the caller)
    """The renderings do not show which text is the assistant's."""


@dataclass
class AssistantSpans:
    """Finds the assistant's spans in a conversation by the verified prefix difference."""

    template: ChatTemplate
    tools: list[Any] | None = None
    variables: dict[str, Any] = field(default_factory=dict)

    def find(self, messages: Sequence[Message], whole: str) -> list[Span]:
        """Spans of `whole`, the rendering of `messages`, in order. Raises `NotVerified`, or one of `REFUSALS`."""
        if len(messages) <= FEW_MESSAGES:
            return self.by_prefixes(messages, whole)
        spans = self.by_pieces(messages, whole)
        if spans is not None:
            return spans
        turns = sum(message.get("role") == "assistant" for message in messages)
        if turns * len(whole) > MOST_CHARACTERS:
            raise NotVerified(
                f"the template does not render each of the {len(messages):,} messages by itself, and rendering"
                f" {turns:,} prefixes of {len(whole):,} characters would take too long. {REMEDY}"
            )
        return self.by_prefixes(messages, whole)

    def by_prefixes(self, messages: Sequence[Message], whole: str) -> list[Span]:
        spans = []
        for k, message in enumerate(messages):
            if message.get("role") != "assistant":
                continue
            before = self._text(messages[:k], prompt=True)
            through = whole if k + 1 == len(messages) else self._text(messages[: k + 1])
            if not whole.startswith(before):
                raise NotVerified(_why(k, "up to the generation prompt before it", before, whole))
            if not whole.startswith(through):
                raise NotVerified(_why(k, "up to its end", through, whole))
            if len(through) < len(before):
                raise NotVerified(_why(k, "without text of its own: it ends before the generation prompt", "", whole))
            spans.append((len(before), len(through)))
        return spans

    def by_pieces(self, messages: Sequence[Message], whole: str) -> list[Span] | None:
        """The same in one rendering a message; None where the pieces do not join to `whole`."""
        first = next((k for k, m in enumerate(messages) if m.get("role") == "assistant"), len(messages))
        question, answer = {"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}
        try:
            opening = self._text([question])
            prompted = self._text([question], prompt=True)
            exchange = self._text([question, answer])
            head = self._text(messages[:first]) if first else ""
            if not prompted.startswith(opening):
                return None
            header = prompted[len(opening) :]
            position, spans = len(head), []
            if not whole.startswith(head):
                return None
            for message in messages[first:]:
                mine = message.get("role") == "assistant"
                start, beginning = (opening, [question]) if mine else (exchange, [question, answer])
                text = self._text([*beginning, message])
                piece = text[len(start) :]
                if not text.startswith(start) or not whole.startswith(piece, position):
                    return None
                if mine:
                    if not piece.startswith(header):
                        return None
                    spans.append((position + len(header), position + len(piece)))
                position += len(piece)
        except REFUSALS:
            return None  # it accepts the row but not our short beginnings (roles must alternate, say)
        return spans if position == len(whole) else None

    def _text(self, messages: Sequence[Message], prompt: bool = False) -> str:
        return self.template.render(
            messages, tools=self.tools, variables=self.variables, add_generation_prompt=prompt
        ).text


def _why(k: int, part: str, prefix: str, whole: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(prefix, whole, strict=False)) if a != b), min(len(prefix), len(whole)))
    return (
        f"the template renders the conversation {part} (message {k + 1}) otherwise when more follows:"
        f" {prefix[at : at + 40]!r} alone, {whole[at : at + 40]!r} in the whole. So it does not show which text the"
        f" assistant generates. {REMEDY}"
    )


def tokens_in_spans(offsets_T: NDArray[np.int64], spans: Sequence[Span]) -> Mask:
    """Tokens [T] from the first to the last that holds a character of each span.

    offsets_T: character start and end of each token [T, 2], in the order of the text. A token that reaches over the
    edge of a span belongs to it, as in transformers.
    """
    holding, starts, ends = _extents(offsets_T)
    edges = np.zeros(len(offsets_T) + 1, np.int64)
    if len(holding) and len(spans):
        wanted = np.array(spans, np.int64).reshape(-1, 2)
        first = np.searchsorted(ends, wanted[:, 0], side="right")  # ends after the span's start
        last = np.searchsorted(starts, wanted[:, 1], side="left") - 1  # starts before its end
        some = (first <= last) & (wanted[:, 0] < wanted[:, 1])
        np.add.at(edges, holding[first[some]], 1)
        np.add.at(edges, holding[last[some]] + 1, -1)
    mask: Mask = np.cumsum(edges[:-1]) > 0
    return mask


def starts_inside_token(offsets_T: NDArray[np.int64], spans: Sequence[Span]) -> bool:
    """Whether a span begins in the middle of a token: the template's last character and the answer's first became one
    token, which inference, where the prompt ends at that place, never sees."""
    _, starts, ends = _extents(offsets_T)
    places = np.array([start for start, end in spans if end > start], np.int64)
    if not len(places) or not len(starts):
        return False
    token = np.searchsorted(ends, places, side="right")
    known = token < len(starts)
    return bool((starts[token[known]] < places[known]).any())


def _extents(offsets_T: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Indices, starts and ends of the tokens that hold characters.

    Tokenizers with `trim_offsets` (GPT-NeoX, OLMo, RoBERTa) give a token of spaces only the empty range at its end;
    what lies between it and the token before is its own. Tokens that remain empty hold no character of the text.
    """
    reached = np.maximum.accumulate(offsets_T[:, 1])
    before = np.concatenate([np.zeros(1, np.int64), reached[:-1]])[: len(offsets_T)]
    empty = offsets_T[:, 0] == offsets_T[:, 1]
    starts = np.where(empty, np.minimum(before, offsets_T[:, 0]), offsets_T[:, 0])
    holding = np.flatnonzero(starts < offsets_T[:, 1])
    return holding, np.maximum.accumulate(starts[holding]), reached[holding]


def tokens_by_prefix(ids_T: NDArray[np.int32], prefix_ids: Sequence[NDArray[np.int32]]) -> Mask:
    """The mask [T] for a tokenizer that gives no offsets.

    prefix_ids: the ids of the text up to the start and to the end of each span in turn. Raises `NotVerified` where such
    a prefix is not tokenised as the whole is.
    """
    mask = np.zeros(len(ids_T), np.bool_)
    cuts = []
    for ids in prefix_ids:
        cut = common_prefix_length(ids, ids_T)
        if cut < len(ids):
            raise NotVerified(
                "this tokenizer gives no character offsets, and a token crosses the edge of an assistant turn. Use the"
                " fast version of the tokenizer (a folder with a tokenizer.json)"
            )
        cuts.append(cut)
    for start, end in zip(cuts[::2], cuts[1::2], strict=True):
        mask[start:end] = True
    return mask


def common_prefix_length(a_T: NDArray[np.int32], b_T: NDArray[np.int32]) -> int:
    """Number of leading tokens that both have in common."""
    shorter = min(len(a_T), len(b_T))
    different = a_T[:shorter] != b_T[:shorter]
    return int(different.argmax()) if different.any() else shorter
