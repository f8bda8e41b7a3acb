"""Whether a rendered conversation holds what its messages say."""

from collections.abc import Sequence

from dynotune.data.rows import Message

_ROLES = ("system", "developer", "user", "assistant", "tool")
_END = 20
"""Characters by which the rest of an edited answer is recognised."""


def lone_surrogate(text: str) -> int | None:
    """The code point of half a character (JSON can spell one; UTF-8, and so a tokenizer, cannot), or None."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return ord(text[error.start])
    return None


def unfaithful(messages: Sequence[Message], text: str) -> set[str]:
    """Names for what the template did to the messages: trimmed, edited or dropped their text.

    Messages stand in order, so each is searched after the one before it and the whole takes one pass.
    """
    found = set()
    position = 0
    for message in messages:
        content = message.get("content")
        if not isinstance(content, str) or not content:
            continue
        at = text.find(content, position)
        if at >= 0:
            position = at + len(content)
            continue
        stripped = content.strip()
        if not stripped:
            continue
        at = text.find(stripped, position)
        if at >= 0:
            position = at + len(stripped)
            found.add("template-trims-content")
        elif text.find(stripped[-_END:], position) >= 0:
            found.add("template-edits-content")
        else:
            role = message.get("role")
            found.add(f"template-drops-{role if role in _ROLES else 'other'}-content")
    return found
