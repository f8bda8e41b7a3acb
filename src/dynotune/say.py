"""Plain lines on a console: text of others is no markup, numbers have no colours, and no line is broken in the middle."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def sayer(console: "Console") -> Callable[[str], None]:
    """What prints a line on `console` as it stands."""
    to_a_file = not console.is_terminal and not console.is_jupyter

    def say(text: str) -> None:
        # rich takes a tenth of a millisecond for a line, and three with cold caches, to lay out what needs no layout. It is
        # needed where a line is captured, or holds line breaks, tabs or what a terminal obeys.
        captured = console.record or console.quiet or getattr(console, "_buffer_index", True)
        if to_a_file and not captured and text.isprintable():
            console.file.write(text + "\n")
            console.file.flush()
        else:  # `emoji`: in a path `:key:` is no picture of one
            console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

    return say


def amount(number: int, what: str) -> str:
    """`1 step`, `2,000 steps`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
