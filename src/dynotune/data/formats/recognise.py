"""Which format a row has, and its normal form.

A format is a name, a test on the row's columns and a conversion. To add one, write the conversion and add a line to
`FORMATS`; the order of the list decides where a row fits several. Formats of pairs are in `preference.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from dynotune.config.keys.data import DataConfig
from dynotune.data.formats.alpaca import alpaca_messages, alpaca_text
from dynotune.data.formats.messages import RefusedError, is_chat, normal_messages, normal_tools, text_of
from dynotune.data.formats.preference import PREFERENCE_FORMATS, shape_of
from dynotune.data.formats.preference_unrecognised import why_no_pair
from dynotune.data.formats.unrecognised import why_unrecognised
from dynotune.data.rows import BadRow, Message, Record, Row
from dynotune.printable import row_beginning

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Setting:
    """What the conversion of a row depends on besides the row."""

    text_field: str = "text"
    """The column of plain text (`dataset_text_field`)."""

    has_chat_template: bool = True
    """Whether the tokenizer can render messages. Alpaca rows become messages if so, and Alpaca's prompt text if not."""

    pairs: bool = False
    """Whether rows are to be pairs of a chosen and a rejected answer."""

    @classmethod
    def of(cls, config: DataConfig, tokenizer: PreTrainedTokenizerBase) -> Self:
        """As a configuration and its tokenizer have it."""
        return cls(config.dataset_text_field, tokenizer.chat_template is not None, config.per_example > 1)


Values = Mapping[str, Any]
Convert = Callable[[Record, Setting], Row]


@dataclass(frozen=True)
class Format:
    name: str
    fits: Callable[[Values, Setting], bool]
    convert: Convert


def normalise(record: Record, setting: Setting) -> tuple[str, Row] | BadRow:
    """The name of the row's format and the row in normal form, or why it has none.

    A column that is null counts as absent: tables with mixed formats fill columns with null.
    """
    values = {column: value for column, value in record.values.items() if value is not None}
    fitting = _fitting(values, setting)
    try:
        if not fitting:
            why = why_no_pair(values) if setting.pairs else why_unrecognised(record.values, setting.text_field)
            raise RefusedError(*why)
        name, convert = fitting[0]
        row = convert(Record(record.place, values), setting)
        row.tools = normal_tools(values.get("tools")) if row.kind != "tokens" else None
        row.chat_template_kwargs = _template_kwargs(values)
    except RefusedError as refused:
        return BadRow(record.place, refused.reason, refused.detail, row_beginning(record.values))
    row.notices[:0] = record.notices
    if len(fitting) > 1:
        # Which one was taken is counted under the format's name; that there was a choice is said here.
        row.notices.append("several-formats")
    return name, row


def _fitting(values: Values, setting: Setting) -> list[tuple[str, Convert]]:
    """Name and conversion of every format that the row has, the one to be taken first."""
    if not setting.pairs:
        return [(known.name, known.convert) for known in FORMATS if known.fits(values, setting)]
    shape = shape_of(values)
    if shape is None:
        return []
    convert = PREFERENCE_FORMATS[shape]
    return [(shape, lambda record, setting: convert(record, has_chat_template=setting.has_chat_template))]


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
    prompt_is_chat, completion_is_chat = is_chat(prompt), is_chat(completion)
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
