"""The chat template: rendering in transformers' sandbox.

Templates come from hubs and are code, so they run only in transformers' immutable Jinja sandbox: no attribute that
starts with an underscore, no change to the row's own lists, and no `range` above 100,000; `bounds` adds limits on time and
memory. What a row contains is a value there, never a template: Jinja written in a message stays text.
"""

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
from jinja2.ext import Extension
from jinja2.meta import find_undeclared_variables
from jinja2.nodes import Node
from jinja2.parser import Parser

from dynotune.data.rows import Message
from dynotune.data.templates.bounds import LARGEST_TEXT, STOPPED, BoundedEnvironment, TooCostlyError, within_bounds
from dynotune.data.templates.training_templates import has_generation_blocks, training_variant
from dynotune.errors import TemplateError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Span = tuple[int, int]
"""Characters [start, end) of a rendered text."""

REFUSALS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    SyntaxError,
)
"""What a template raises at a row that it does not accept (`raise_exception`, an undefined value, `str + list`, ...), or
because it asks for too much: a string of 100 GB, or 30 loops inside one another (Python cannot compile them)."""

_ONE_AT_A_TIME = threading.Lock()
"""transformers keeps one compiled template for all threads, and the generated spans of a rendering in it: two at once would
mix theirs, or refuse each other's rows."""

STOPS = 3
"""After this many conversations that took too long a template is not tried again: each may cost a minute."""

HOW_TO_GIVE_ONE = (
    "Give one with `chat_template_path`: a .jinja file, or the folder or hub id of a tokenizer that has one"
    " (for a base model usually its -Instruct or -it sibling)."
)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation as text. `generated` are the `{% generation %}` spans in characters."""

    text: str
    generated: Sequence[Span] = field(default=())


class ChatTemplate:
    """The template of a tokenizer, or the training variant of it that assistant-only loss needs.

    `for_assistant_masks`: take the variant with `{% generation %}` blocks where the tokenizer's template is one of a
    known family without them, as TRL does.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", *, for_assistant_masks: bool = False) -> None:
        self.tokenizer = tokenizer
        template: Any = tokenizer.chat_template
        self.exists = bool(template)
        self._named = dict(template) if isinstance(template, dict) else {}
        self._override: str | None = None
        self.family: str | None = None
        self._stopped = 0
        if self._named and "default" not in self._named:
            raise TemplateError(
                f"The tokenizer has chat templates named {', '.join(self._named)}, and none named `default`."
                f" {HOW_TO_GIVE_ONE}"
            )
        if self.exists and for_assistant_masks:
            variant = training_variant(self.source())
            if variant is not None:
                self.family, self._override = variant

    def source(self, tools: list[Any] | None = None) -> str:
        """The Jinja text that renders a conversation with these tools. Raises `TemplateError` if there is none."""
        if self._override is not None:
            return self._override
        if not self.exists:
            self._missing()
        if self._named:
            variant = "tool_use" if tools is not None and "tool_use" in self._named else "default"
            return str(self._named[variant])
        return str(self.tokenizer.chat_template)

    def _missing(self) -> NoReturn:
        name = self.tokenizer.name_or_path or type(self.tokenizer).__name__
        raise TemplateError(
            f"The data holds conversations, and the tokenizer {name} has no chat template. {HOW_TO_GIVE_ONE}"
        )

    @cached_property
    def has_generation(self) -> bool:
        return has_generation_blocks(self.source())

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names that the template reads and does not set: `messages`, `tools`, `enable_thinking`, ..."""
        # Looking for names computes constants, so it needs the bounds, too.
        environment = BoundedEnvironment(extensions=["jinja2.ext.loopcontrols", _GenerationTag])
        sources = {self.source(), self.source(tools=[])}
        try:
            return frozenset(name for text in sources for name in find_undeclared_variables(environment.parse(text)))
        except jinja2.TemplateSyntaxError as error:
            said = str(error.message).rstrip(".")
            raise TemplateError(
                f"The chat template has a syntax error in line {error.lineno}: {said}. {HOW_TO_GIVE_ONE}"
            ) from error
        except (RecursionError, MemoryError) as error:
            raise TemplateError(
                f"The chat template is nested too deeply to be parsed ({type(error).__name__}). {HOW_TO_GIVE_ONE}"
            ) from error

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the template's text, for manifests."""
        return hashlib.sha256(self.source().encode()).hexdigest()

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: list[Any] | None = None,
        variables: dict[str, Any] | None = None,
        add_generation_prompt: bool = False,
        generated: bool = False,
    ) -> Rendered:
        """One conversation as text; `generated` also collects the `{% generation %}` spans.

        Raises one of `REFUSALS` where the template does not accept the conversation.
        """
        from transformers.utils.chat_template_utils import render_jinja_template

        names: dict[str, Any] = {**self.tokenizer.special_tokens_map, **(variables or {})}
        # Messages of one table share their keys, so an absent `tool_calls` comes as null; templates test presence.
        # transformers drops nulls itself from 5.20 or so; doing it here gives all versions the same tokens.
        chat = [{key: value for key, value in message.items() if value is not None} for message in messages]

        def rendering() -> Any:
            return render_jinja_template(
                conversations=[chat],
                tools=tools,
                chat_template=self.source(tools),
                return_assistant_tokens_mask=generated,
                add_generation_prompt=add_generation_prompt,
                **names,
            )

        with _ONE_AT_A_TIME:
            if self._stopped >= STOPS:
                raise TooCostlyError(f"it took too much time or memory for {STOPS} conversations")
            try:
                rendered = within_bounds(rendering)
            except TooCostlyError as error:
                self._stopped += STOPPED in str(error)
                raise
        texts, spans = rendered
        if len(texts[0]) > LARGEST_TEXT:
            raise jinja2.TemplateRuntimeError(
                f"it wrote {len(texts[0]):,} characters, and the most that a conversation may have is {LARGEST_TEXT:,}"
            )
        return Rendered(texts[0], spans[0] if generated else ())


class _GenerationTag(Extension):
    """Lets Jinja's parser read `{% generation %}`, which transformers defines at rendering."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
