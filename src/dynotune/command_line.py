"""The words that this process was started with, for what it starts in turn."""

from contextvars import ContextVar

WORDS: ContextVar[tuple[str, ...]] = ContextVar("WORDS", default=())
"""Behind `dynotune`, as the shell gave them."""
