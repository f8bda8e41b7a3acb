"""The words that this process was started with, for what it starts in turn."""

from contextvars import ContextVar

WORDS: ContextVar[tuple[str, ...]] = ContextVar("WORDS", default=())
"""Behind `dynotune`, as the shell gave them."""

SHOW_MEMORY: ContextVar[bool] = ContextVar("SHOW_MEMORY", default=False)
"""Whether to show what there was to choose from when memory was looked at (`--show_memory`)."""
