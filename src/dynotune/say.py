"""Plain lines on a console: text of others is no markup, numbers have no colours, and no line is broken in the middle."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def sayer(console: "Console") -> Callable[[str], None]:
    """What prints a line on `console` as it stands."""
    return lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True)
