"""Which names a row or the configuration may set in a chat template.

`chat_template_kwargs` reach transformers as keyword arguments, beside the conversation and the template themselves. A
name that means one of those would train another text than the one that was checked, so such names are refused.
"""

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from jinja2.defaults import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CONVERSATION = {"messages", "conversation", "conversations", "tools"}
_FUNCTIONS = {*DEFAULT_NAMESPACE, "raise_exception", "strftime_now"}
_DATA = {"documents"}
"""A parameter of transformers that templates read as data, so rows and configuration may give it."""


@cache
def _parameters() -> frozenset[str]:
    """Asked of transformers and not listed, because each version adds some."""
    import inspect

    from transformers import PreTrainedTokenizerBase
    from transformers.utils.chat_template_utils import render_jinja_template

    functions = (PreTrainedTokenizerBase.apply_chat_template, render_jinja_template)
    names = {name for function in functions for name in inspect.signature(function).parameters}
    return frozenset(names - _DATA | _CONVERSATION)


def reserved_by_rendering(names: Iterable[str]) -> list[str]:
    """Those that steer rendering or are the conversation. Neither rows nor the configuration may set them."""
    return sorted(_parameters() & {str(name) for name in names})


def reserved_for_rows(names: Iterable[str], tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    """Those that a row may not set: besides the above, special tokens and the template's functions."""
    tokens = {*tokenizer.special_tokens_map, *type(tokenizer).SPECIAL_TOKENS_ATTRIBUTES}
    return sorted((_parameters() | tokens | _FUNCTIONS) & {str(name) for name in names})
