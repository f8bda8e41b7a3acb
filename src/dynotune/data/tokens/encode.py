"""Rows to examples: rendered, tokenised in batches, labelled. Token ids and labels are TRL's (docs/templates.md)."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dynotune.config.keys.data import DataConfig
from dynotune.data.examples import IGNORE, Example
from dynotune.data.rows import BadRow, Message, Row
from dynotune.data.templates.faithful import lone_surrogate, unfaithful
from dynotune.data.templates.masks import (
    AssistantSpans,
    NotVerified,
    common_prefix_length,
    starts_inside_token,
    tokens_by_prefix,
    tokens_in_spans,
)
from dynotune.data.templates.probe import UNREAD, TemplateReport, probe
from dynotune.data.templates.template import REFUSALS, ChatTemplate, Span
from dynotune.data.templates.variables import reserved_for_rows
from dynotune.data.tokens.batches import Here, batches_of
from dynotune.data.tokens.pairs import is_other_side, joined, sides_of
from dynotune.data.tokens.pretokenized import TokenRows
from dynotune.data.tokens.tokenise import BatchTokeniser, Tokens
from dynotune.errors import ModelError
from dynotune.printable import printable, row_beginning

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Encoded = Example | list[Example] | BadRow
"""What a row became. A list where a pre-tokenised row held several packed documents, and of a pair: chosen, rejected."""


@dataclass(slots=True)
class _Text:
    """A rendered row. `spans`: the assistant's characters, where only they are to be trained."""

    row: Row
    text: str
    conversation: bool
    prompt: str | None = None
    spans: Sequence[Span] | None = None
    notices: set[str] = field(default_factory=set)


class Encoder:
    """Turns rows into untruncated examples.

    `notices` counts, by name, the rows that something remarkable was found about; `report` explains what was found
    about the template itself.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", config: DataConfig) -> None:
        self.tokenizer, self.config = tokenizer, config
        self.notices: Counter[str] = Counter()
        self.template = ChatTemplate(tokenizer, for_assistant_masks=config.assistant_only_loss)
        self._tokeniser = BatchTokeniser(tokenizer)
        self._token_rows = TokenRows(tokenizer, config)
        self._last_prompt: tuple[Row, str] | None = None

    @cached_property
    def template_report(self) -> TemplateReport:
        """What is known of the template. Raises `TemplateError` if there is none, or it cannot do what is asked."""
        self.template.source()
        return probe(self.template, self.config.chat_template_kwargs, assistant_only=self.config.assistant_only_loss)

    @property
    def thread_safe(self) -> bool:
        """Whether several encoders may use the tokenizer at once."""
        return self._tokeniser.thread_safe

    @property
    def probed(self) -> bool:
        """Whether some row was a conversation, so that the template was examined."""
        return "template_report" in self.__dict__

    @property
    def report(self) -> list[str]:
        """What was found about the template and concerns rows that were encoded: sentences to say once."""
        if not self.probed:
            return []
        return [finding.sentence for finding in self.template_report.findings if self.notices[finding.name]]

    def get_ready(self) -> Self:
        """What many rows are worth, done now: before this process is copied, say."""
        self._tokeniser.look_words_up()
        return self

    def encode(self, rows: Sequence[Row]) -> list[Encoded]:
        """One result a row, in order.

        A row that cannot be rendered, tokenised or labelled becomes a `BadRow`. Raises `TemplateError` where no row
        could be: the tokenizer has no template for conversations, or assistant-only loss cannot be honoured.
        """
        if not any(row.kind == "pair" for row in rows):
            results = self._encode(rows)
        else:
            assert all(row.kind == "pair" for row in rows)
            sides = self._encode([side for row in rows for side in sides_of(row)])
            results = [
                _Result(joined(row, chosen.made, rejected.made), chosen.notices | rejected.notices)
                for row, chosen, rejected in zip(rows, sides[::2], sides[1::2], strict=True)
            ]
        for result in results:
            if not isinstance(result.made, BadRow):  # a refused row is counted by its reason alone
                self.notices.update(result.notices)
        return [result.made for result in results]

    def _encode(self, rows: Sequence[Row]) -> "list[_Result]":
        results: list[_Result | None] = [None] * len(rows)
        self._last_prompt = None  # what it was made from may have been mended in place
        batches = list(batches_of(rows))
        # One batch has nothing to be tokenised beside, and a thread for it would take turns with this one.
        with ThreadPoolExecutor(1) if len(batches) > 1 and self._tokeniser.thread_safe else Here() as worker:
            waiting: tuple[dict[int, _Text], Future[list[_Encodings]]] | None = None
            for indices in batches:
                texts: dict[int, _Text] = {}
                for index in indices:
                    found = self._render(rows[index])
                    if isinstance(found, _Text):
                        texts[index] = found
                    else:
                        results[index] = _Result(found)
                following = worker.submit(self._tokenise, list(texts.values()))
                if waiting is not None:
                    self._label(waiting, results)
                waiting = texts, following
            if waiting is not None:
                self._label(waiting, results)
        done = [result for result in results if result is not None]
        assert len(done) == len(rows)
        return done

    # Rendering

    def _render(self, row: Row) -> "_Text | Encoded":
        if row.kind == "tokens":
            return self._token_rows.encode(row, self.notices)
        if row.kind == "messages":
            assert row.messages is not None
            found = self._conversation(row, row.messages)
        elif row.kind == "text":
            assert row.text is not None
            found = self._plain(row, row.text)
        elif isinstance(row.prompt, str):
            assert isinstance(row.completion, str)
            found = self._plain(row, row.prompt + self._ended(row.completion), prompt=row.prompt)
        else:
            assert row.prompt is not None
            assert isinstance(row.completion, list)
            found = self._conversation(row, [*row.prompt, *row.completion], prompt=row.prompt)
        if isinstance(found, _Text):
            for text in (found.text, found.prompt or ""):
                surrogate = lone_surrogate(text)
                if surrogate is not None:
                    detail = f"it holds the lone surrogate U+{surrogate:04X}, which is no character"
                    return BadRow(row.place, "lone-surrogate", detail)
        return found

    def _ended(self, text: str) -> str:
        eos = self.tokenizer.eos_token
        if eos is None:
            raise ModelError(
                "The tokenizer has no end token, which plain text and completions must end with."
                " Set `eos_token` to a token of its vocabulary."
            )
        return text if text.endswith(eos) else text + str(eos)

    def _plain(self, row: Row, text: str, prompt: str | None = None) -> "_Text | BadRow":
        if self.config.assistant_only_loss:
            return BadRow(
                row.place,
                "assistant-only-needs-messages",
                "`assistant_only_loss: true` needs conversations, and this row holds plain text",
            )
        return _Text(row, text if prompt is not None else self._ended(text), False, prompt)

    def _conversation(self, row: Row, messages: list[Message], prompt: list[Message] | None = None) -> "_Text | BadRow":
        findings = self.template_report
        if any(isinstance(m.get("content"), list) for m in messages) and findings.concerning("content parts"):
            return BadRow(row.place, "content-parts-not-rendered", findings.concerning("content parts")[0].sentence)
        own = row.chat_template_kwargs
        if own and (reserved := reserved_for_rows(own, self.tokenizer)):
            name = printable(reserved[0], 60)
            detail = f"`chat_template_kwargs` sets `{name}`, which a row may not: only variables of the template's own"
            return BadRow(row.place, "reserved-template-variable", detail, row_beginning(own))
        read = {name: value for name, value in own.items() if name in self.template.variables}
        try:
            tools = json.loads(row.tools) if isinstance(row.tools, str) else row.tools
            variables = {**self.config.chat_template_kwargs, **read}
            masked = self.config.assistant_only_loss
            by_blocks = masked and self.template.has_generation
            whole = self.template.render(messages, tools=tools, variables=variables, generated=by_blocks)
            spans: Sequence[Span] | None = whole.generated if by_blocks else None
            if masked and not by_blocks:
                spans = AssistantSpans(self.template, tools, variables).find(messages, whole.text)
            before = None
            if prompt is not None and self._completion_only(row):
                before = self._rendered_prompt(row, prompt, tools, variables)
        except NotVerified as error:
            return BadRow(row.place, "mask-not-verified", str(error))
        except REFUSALS as error:
            said = str(error) or type(error).__name__
            return BadRow(
                row.place,
                "template-refused",
                f"the chat template refused the conversation: {said}{_why_undefined(said)}",
            )
        concerns = {"conversations"}
        concerns |= {"tools"} if row.tools else set()
        concerns |= {"tool calls"} if any(message.get("tool_calls") for message in messages) else set()
        notices = {finding.name for finding in findings.findings if finding.concerns in concerns}
        notices |= {UNREAD} if len(read) < len(own) else set()
        return _Text(row, whole.text, True, before, spans, notices | unfaithful(messages, whole.text))

    def _rendered_prompt(
        self, row: Row, prompt: list[Message], tools: list[Any] | None, variables: dict[str, Any]
    ) -> str:
        """The prompt and the beginning of an answer, rendered once for a pair's sides, which follow each other."""
        last = self._last_prompt
        if last is None or not is_other_side(last[0], row):
            text = self.template.render(prompt, tools=tools, variables=variables, add_generation_prompt=True).text
            last = self._last_prompt = row, text
        return last[1]

    def _completion_only(self, row: Row) -> bool:
        if self.config.per_example > 1:
            return True
        if self.config.completion_only_loss is None:
            return row.kind == "prompt_completion"
        return self.config.completion_only_loss

    # Tokens and labels

    def _tokenise(self, texts: list[_Text]) -> "list[_Encodings]":
        """All texts in as few calls as their kinds allow. Runs in the worker thread."""
        encode = self._tokeniser.encode
        whole: dict[int, Tokens] = {}
        prompts: dict[int, Tokens] = {}
        for conversation in (True, False):
            for offsets in (True, False):
                kind = (conversation, offsets)
                some = [i for i, t in enumerate(texts) if (t.conversation, t.spans is not None) == kind]
                made = encode([texts[i].text for i in some], special=not conversation, offsets=offsets)
                whole.update(zip(some, made, strict=True))
            some = [i for i, t in enumerate(texts) if t.conversation == conversation and t.prompt is not None]
            # A pair's sides have the same prompt.
            different = list(dict.fromkeys(texts[i].prompt or "" for i in some))
            by_text = dict(zip(different, encode(different, special=not conversation), strict=True))
            prompts.update((i, by_text[texts[i].prompt or ""]) for i in some)
        return [_Encodings(whole[i], prompts.get(i)) for i in range(len(texts))]

    def _label(
        self, chunk: "tuple[dict[int, _Text], Future[list[_Encodings]]]", results: "list[_Result | None]"
    ) -> None:
        texts, tokens = chunk
        for (index, text), encodings in zip(texts.items(), tokens.result(), strict=True):
            results[index] = _Result(self._example(text, encodings), text.notices)

    def _example(self, text: _Text, tokens: "_Encodings") -> Example | BadRow:
        ids_T = tokens.whole.ids_T
        bos = self.tokenizer.bos_token_id
        if bos is not None and len(ids_T) > 1 and ids_T[0] == ids_T[1] == bos:
            text.notices.add("doubled-bos")
        labels_T: NDArray[np.int32] = ids_T
        if tokens.prompt is not None and self._completion_only(text.row):
            length = common_prefix_length(tokens.prompt.ids_T, ids_T)
            if length < len(tokens.prompt.ids_T):
                text.notices.add("prompt-not-a-prefix")
            labels_T = ids_T.copy()
            labels_T[:length] = IGNORE
        elif self.config.completion_only_loss and text.row.kind != "prompt_completion":
            text.notices.add("completion-only-without-completion")
        if text.spans is not None:
            try:
                labels_T = np.where(self._assistant_mask(text, tokens.whole), labels_T, IGNORE).astype(
                    np.int32, copy=False
                )
            except NotVerified as error:
                return BadRow(text.row.place, "mask-not-verified", str(error))
        # nothing precedes the first token, so a label there carries no loss
        labelled = len(ids_T) > 1 if labels_T is ids_T else (labels_T[1:] != IGNORE).any()
        if not labelled:
            return BadRow(text.row.place, "no-labels", self._why_no_labels(text, len(ids_T)))
        return Example(ids_T, labels_T, text.row.place)

    def _assistant_mask(self, text: _Text, tokens: Tokens) -> NDArray[np.bool_]:
        assert text.spans is not None
        if tokens.offsets_T is None:
            edges = [text.text[:edge] for span in text.spans for edge in span]
            pieces = self._tokeniser.encode(edges, special=False)
            return tokens_by_prefix(tokens.ids_T, [piece.ids_T for piece in pieces])
        if starts_inside_token(tokens.offsets_T, text.spans):
            text.notices.add("answer-starts-inside-a-token")
        return tokens_in_spans(tokens.offsets_T, text.spans)

    def _why_no_labels(self, text: _Text, length: int) -> str:
        if length < 2:
            return f"it has {length} token{'s' * (length != 1)}: nothing can be predicted"
        if text.spans is not None and not text.spans:
            return "no text of the assistant in it, and `assistant_only_loss: true` trains nothing else"
        return "no token of it carries loss: its answer or completion is empty"


@dataclass(frozen=True, slots=True)
class _Result:
    """What a row became, and what was noticed about it."""

    made: Encoded
    notices: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Encodings:
    whole: Tokens
    prompt: Tokens | None


def _why_undefined(said: str) -> str:
    """What to do about a special token that a template writes and the tokenizer has not."""
    token = re.fullmatch(r"'(bos|eos|pad)_token' is undefined", said)
    if token is None:
        return ""
    what = f"set `{token[1]}_token`" if token[1] != "bos" else "name one in its tokenizer_config.json"
    return f": the tokenizer has no such token, so every conversation is; {what}"
