"""Which format a row has, and its normal form.

A format is a name, a test on the row's columns and a conversion. To add one, write the conversion and add a line to
`FORMATS`; the order of the list decides where a row fits several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dynotune.data.formats.alpaca import alpaca_messages, alpaca_text
from dynotune.data.formats.messages import RefusedError, normal_messages, normal_tools, text_of
from dynotune.data.formats.unrecognised import why_unrecognised
from dynotune.data.printable import row_beginning
from dynotune.data.rows import BadRow, Message, Record, Row


@dataclass(frozen=True)
class Setting:
    """What the conversion of a row depends on besides the row."""

    text_field: str = "text"
    """The column of plain text (`dataset_text_field`)."""

    has_chat_template: bool = True
    """Whether the tokenizer can render messages. Alpaca rows become messages if so, and Alpaca's prompt text if not."""


Values = Mapping[str, Any]


@dataclass(frozen=True)
class Format:
    name: str
    fits: Callable[[Values, Setting], bool]
    convert: Callable[[Record, Setting], Row]


def normalise(record: Record, setting: Setting) -> tuple[str, Row] | BadRow:
    """The name of the row's format and the row in normal form, or why it has none.

    A column that is null counts as absent: tables with mixed formats fill columns with null.
    """
    values = {column: value for column, value in record.values.items() if value is not None}
    fitting = [known for known in FORMATS if known.fits(values, setting)]
    try:
        if not fitting:
            raise RefusedError(*why_unrecognised(record.values, setting.text_field))
        row = fitting[0].convert(Record(record.place, values), setting)
        row.tools = normal_tools(values.get("tools")) if row.kind != "tokens" else None
        row.chat_template_kwargs = _template_kwargs(values)
    except RefusedError as refused:
        return BadRow(record.place, refused.reason, refused.detail, row_beginning(record.values))
    row.notices[:0] = record.notices
    if len(fitting) > 1:
        # Which one was taken is counted under the format's name; that there was a choice is said here.
        row.notices.append("several-formats")
    return fitting[0].name, row


def _template_kwargs(values: Values) -> dict[str, Any]:
    kwargs = values.get("chat_template_kwargs", {})
    if not isinstance(kwargs, Mapping):
        detail = f"`chat_template_kwargs` must be an object, and this is {type(kwargs).__name__}"
        raise RefusedError("chat-template-kwargs-not-an-object", detail)
    return dict(kwargs)


def _tokens(record: Record, setting: Setting) -> Row:
    return Row(record.place, "tokens", tokens=dict(record.values))


def _prompt_completion(record: Record, setting: Setting) -> Row:
    notices: list[str] = []
    prompt, completion = record.values["prompt"], record.values["completion"]
    prompt_is_chat, completion_is_chat = _is_chat(prompt), _is_chat(completion)
    if prompt_is_chat != completion_is_chat:
        raise RefusedError(
            "prompt-and-completion-differ", "of `prompt` and `completion` one is text and the other is messages"
        )
    row = Row(record.place, "prompt_completion", notices=notices)
    if prompt_is_chat:
        row.prompt = normal_messages(prompt, "prompt", notices)
        row.completion = normal_messages(completion, "completion", notices)
    else:
        row.prompt = text_of(prompt, "`prompt`", notices)
        row.completion = text_of(completion, "`completion`", notices)
    if isinstance(record.values.get("label"), bool):
        # Unpaired preference data: here the rows labelled False would be learned like the others.
        notices.append("preference-label-ignored")
    return row


def _is_chat(value: Any) -> bool:
    """Messages, or something that was meant to be; a list of content parts is text."""
    if not isinstance(value, list) or not value:
        return isinstance(value, list)
    return not (isinstance(value[0], Mapping) and "type" in value[0] and "role" not in value[0])


def _messages(record: Record, setting: Setting) -> Row:
    notices: list[str] = []
    messages = normal_messages(record.values["messages"], "messages", notices)
    return Row(record.place, "messages", messages=messages, notices=notices)


def _sharegpt(record: Record, setting: Setting) -> Row:
    notices: list[str] = []
    messages = normal_messages(record.values["conversations"], "conversations", notices)
    # In this format these names are the rule and not remarkable.
    notices = [name for name in notices if name != "sharegpt-role-names"]
    system = record.values.get("system")
    if isinstance(system, str) and system and messages[0]["role"] != "system":
        first: Message = {"role": "system", "content": system}
        messages.insert(0, first)
    return Row(record.place, "messages", messages=messages, notices=notices)


def _text(record: Record, setting: Setting) -> Row:
    notices: list[str] = []
    text = text_of(record.values[setting.text_field], f"`{setting.text_field}`", notices)
    return Row(record.place, "text", text=text, notices=notices)


def _alpaca(record: Record, setting: Setting) -> Row:
    notices: list[str] = []
    convert = alpaca_messages if setting.has_chat_template else alpaca_text
    prompt, completion = convert(record.values, notices)
    return Row(record.place, "prompt_completion", prompt=prompt, completion=completion, notices=notices)


def _has(*columns: str) -> Callable[[Values, Setting], bool]:
    wanted = frozenset(columns)
    return lambda values, setting: wanted <= values.keys()


# TRL's order: tokens, then prompt/completion, then messages, then text. Alpaca, which TRL does not know, comes last, so
# that a row with a ready-made `text` column is trained as TRL would.
FORMATS = [
    Format("pre-tokenised", _has("input_ids"), _tokens),
    Format("prompt-completion", _has("prompt", "completion"), _prompt_completion),
    Format("messages", _has("messages"), _messages),
    Format("sharegpt", _has("conversations"), _sharegpt),
    Format("text", lambda values, setting: setting.text_field in values, _text),
    Format("alpaca", _has("instruction", "output"), _alpaca),
]
