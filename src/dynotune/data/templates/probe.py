"""What a chat template does to a conversation, found out before training by rendering made-up ones.

A template may silently leave out tools, tool calls or the system message, edit what the assistant said, forget to end a
turn, or write a second BOS. None of that stops a run or shows in the loss. Each finding has a name, under which the
rows that it concerns are counted, and a sentence that is printed once.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dynotune.data.rows import Message
from dynotune.data.templates.masks import REMEDY, AssistantSpans, NotVerified
from dynotune.data.templates.template import REFUSALS, ChatTemplate
from dynotune.data.templates.variables import reserved_by_rendering
from dynotune.errors import TemplateError
from dynotune.printable import printable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

UNREAD = "template-variable-not-read"
"""Notice: `chat_template_kwargs`, of the run or of the row, hold a name that the template does not read."""

Concerns = Literal["conversations", "tools", "tool calls", "content parts"]

# Letters only: templates trim, split and quote, but do not rewrite words.
_USER, _ANSWER, _LATER, _SYSTEM = "userqzv", "answerqzv", "laterqzv", "systemqzv"
_TOOL, _ARGUMENT, _VALUE, _RESULT, _THOUGHT = "toolqzv", "argumentqzv", "valueqzv", "resultqzv", "thoughtqzv"


@dataclass(frozen=True)
class Finding:
    """Something remarkable about a template. It concerns rows that have conversations, tools, tool calls, ..."""

    name: str
    sentence: str
    concerns: Concerns = "conversations"


@dataclass(frozen=True)
class TemplateReport:
    """What is known of a template. `end_token` is the token that follows the assistant's text, if any."""

    findings: tuple[Finding, ...]
    end_token: str | None
    prefix_preserving: bool
    """Earlier turns are rendered the same, whatever follows them."""

    def concerning(self, what: Concerns) -> list[Finding]:
        return [finding for finding in self.findings if finding.concerns == what]


def probe(template: ChatTemplate, variables: dict[str, Any], *, assistant_only: bool) -> TemplateReport:
    """Examine `template` with the run's `chat_template_kwargs`.

    Raises `TemplateError` if it cannot be parsed, or if assistant-only loss is asked for and neither generation blocks
    nor the prefix difference can tell which text is the assistant's.
    """
    read = template.variables  # parses: a syntax error is reported here, not at the first row
    if reserved := reserved_by_rendering(variables):
        raise TemplateError(
            f"`chat_template_kwargs`: `{printable(reserved[0], 60)}` is not a variable of the template; it would change"
            " how or what is rendered. Remove it (a template is given with `chat_template_path`)."
        )
    look = _Look(template, variables)
    dialogue: list[Message] = [_message("user", _USER), _message("assistant", _ANSWER)]
    longer = [*dialogue, _message("user", _LATER), _message("assistant", "endqzv")]
    short, long = look.text(dialogue), look.text(longer)
    preserving = short is not None and long is not None and long.startswith(short)
    findings = [*_unread(variables, read), *_dropped(look, template), *_edited(look)]
    end_token = None
    if short is not None:
        end_token, ending = _ending(look, template.tokenizer, dialogue, long, assistant_only)
        findings += ending
        findings += _beginning(template.tokenizer, short)
    if assistant_only and long is not None:
        _require_mask(template, variables, longer, long)
    if template.family is not None:
        findings.append(
            Finding(
                "training-template",
                f"Assistant-only loss takes the training variant of the {template.family} template: generation blocks"
                " added, and every answer rendered the same whatever follows it (as in TRL).",
            )
        )
    return TemplateReport(tuple(findings), end_token, preserving)


class _Look:
    """Renders probes; a template that refuses one gives None, which only means that nothing can be said of it."""

    def __init__(self, template: ChatTemplate, variables: dict[str, Any]) -> None:
        self.template, self.variables = template, variables

    def text(self, messages: list[Message], tools: list[Any] | None = None) -> str | None:
        try:
            return self.template.render(messages, tools=tools, variables=self.variables).text
        except REFUSALS:
            return None


def _message(role: str, content: Any, **more: Any) -> Message:
    return {"role": role, "content": content, **more}


def _unread(variables: dict[str, Any], read: frozenset[str]) -> list[Finding]:
    unread = ", ".join(f"`{printable(str(name), 60)}`" for name in variables if name not in read)
    sentence = f"`chat_template_kwargs` sets {unread}, which the chat template does not read: it has no effect."
    return [Finding(UNREAD, sentence)] if unread else []


def _dropped(look: _Look, template: ChatTemplate) -> list[Finding]:
    found = []
    user, answer = _message("user", _USER), _message("assistant", _ANSWER)
    function = {
        "name": _TOOL,
        "description": "d",
        "parameters": {"type": "object", "properties": {_ARGUMENT: {"type": "string", "description": "d"}}},
    }
    with_tools = look.text([user, answer], tools=[{"type": "function", "function": function}])
    if with_tools is not None and _TOOL not in with_tools:
        found.append(
            Finding(
                "template-drops-tools",
                "The chat template does not show `tools`: the model learns calls without seeing what it may call."
                " A template that renders them can be given with `chat_template_path`.",
                "tools",
            )
        )
    if _calls_are_lost(look, user):
        found.append(
            Finding(
                "template-drops-tool-calls",
                "The chat template leaves `tool_calls` out: such answers become empty or lose the call."
                " A template that renders them can be given with `chat_template_path`.",
                "tool calls",
            )
        )
    parts = look.text([_message("user", [{"type": "text", "text": _USER}]), answer])
    if parts is not None and "'text'" in parts:
        found.append(
            Finding(
                "content-parts-as-python",
                "The chat template writes a list of content parts as Python would print it. Give the text as a string.",
                "content parts",
            )
        )
    return found


def _calls_are_lost(look: _Look, user: Message) -> bool:
    for arguments in ({_ARGUMENT: _VALUE}, f'{{"{_ARGUMENT}": "{_VALUE}"}}'):
        call = {"type": "function", "id": "abcdefghi", "function": {"name": _TOOL, "arguments": arguments}}
        text = look.text([user, _message("assistant", "", tool_calls=[call])])
        if text is not None:
            return not (_TOOL in text and _ARGUMENT in text and _VALUE in text)
    return False


def _edited(look: _Look) -> list[Finding]:
    user = _message("user", _USER)
    thinking = _message("assistant", f"<think>\n{_THOUGHT}\n</think>\n\n{_ANSWER}")
    last = look.text([user, thinking])
    earlier = look.text([user, thinking, _message("user", _LATER), _message("assistant", _ANSWER)])
    if last is not None and _THOUGHT not in last:
        return [
            Finding(
                "template-strips-reasoning",
                "The chat template removes `<think>` text from every answer, so reasoning is never trained.",
            )
        ]
    if last is not None and earlier is not None and _THOUGHT not in earlier:
        return [
            Finding(
                "template-strips-earlier-reasoning",
                "The chat template removes `<think>` text from all answers but the last: only the last answer's"
                " reasoning is trained, as inference will see it.",
            )
        ]
    return []


def _ending(
    look: _Look, tokenizer: "PreTrainedTokenizerBase", dialogue: list[Message], long: str | None, assistant_only: bool
) -> tuple[str | None, list[Finding]]:
    """The token after the last answer, and what is wrong with it."""
    # where nothing follows the last answer, some templates end the turn only when another message comes
    last = look.text(dialogue)
    assert last is not None
    rest = last[last.rindex(_ANSWER) + len(_ANSWER) :] if _ANSWER in last else ""
    end = _first_control_token(tokenizer, rest)
    if end is None:
        between = long[long.index(_ANSWER) + len(_ANSWER) : long.index(_LATER)] if long and _LATER in long else ""
        later = _first_control_token(tokenizer, between)
        where = f" (it writes {later!r} only when another message follows)" if later else ""
        return None, [
            Finding(
                "end-token-never-trained",
                f"The chat template writes no end token after the last answer{where}: the model is not taught to stop."
                " End the assistant's text with the end token in the template (inside its generation block).",
            )
        ]
    found = []
    eos = tokenizer.eos_token
    if eos is not None and eos not in rest:
        found.append(
            Finding(
                "end-token-is-not-eos",
                f"Answers end with {end!r}, and the tokenizer's end token is {eos!r}: generation would not stop there."
                f" Set `eos_token: {end}`.",
            )
        )
    if assistant_only and look.template.has_generation:
        rendered = look.template.render(dialogue, variables=look.variables, generated=True)
        at = rendered.text.rindex(_ANSWER) + len(_ANSWER) + rest.index(end)
        if not any(start <= at < stop for start, stop in rendered.generated):
            found.append(
                Finding(
                    "end-token-never-trained",
                    f"The end token {end!r} stands outside the template's generation block, so assistant-only loss does"
                    " not train it: the model is not taught to stop. Move it before `{% endgeneration %}`.",
                )
            )
    return end, found


def _first_control_token(tokenizer: "PreTrainedTokenizerBase", text: str) -> str | None:
    """The first added or special token in `text`. Added runs of spaces (OLMo has them) are no control tokens."""
    control = {*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens}
    places = [(text.find(token), -len(token), token) for token in control if token.strip() and token in text]
    return min(places)[2] if places else None


def _beginning(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[Finding]:
    bos = tokenizer.bos_token
    if not bos:
        return []
    if text.startswith(bos + bos):
        return [Finding("doubled-bos-in-template", f"The chat template writes {bos!r} twice at the beginning.")]
    adds = tokenizer("x")["input_ids"][:1] == [tokenizer.bos_token_id]
    if adds and not text.startswith(bos):
        return [
            Finding(
                "template-without-bos",
                f"The tokenizer puts {bos!r} before plain text, and the chat template writes none before conversations."
                " If the model was trained with it, let the template begin with `{{ bos_token }}`.",
            )
        ]
    return []


def _require_mask(template: ChatTemplate, variables: dict[str, Any], messages: list[Message], text: str) -> None:
    if template.has_generation:
        rendered = template.render(messages, variables=variables, generated=True)
        if not any(_ANSWER in rendered.text[start:end] for start, end in rendered.generated):
            raise TemplateError(
                "`assistant_only_loss: true`, but the template's `{% generation %}` blocks do not hold the assistant's"
                f" text. {REMEDY}"
            )
        return
    try:
        AssistantSpans(template, variables=variables).by_prefixes(messages, text)
    except NotVerified as error:
        raise TemplateError(f"`assistant_only_loss: true` cannot be honoured: {error}") from error
    except REFUSALS:
        return  # it refuses the made-up conversation; each row is still verified by itself
