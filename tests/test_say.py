"""Promise: a line is shown as it stands, on whatever console."""

import io

import pytest
from rich.console import Console

from dynotune.say import sayer

LINES = (
    "saved /runs/:smile:/model [bold]not[/bold] 1,234",
    "a line that is " + "long " * 40 + "and not broken",
    "two\nlines",
)


@pytest.mark.parametrize("kind", ["file", "terminal", "recording"])
def test_a_line_stands_as_it_is(kind: str) -> None:
    file = io.StringIO()
    console = Console(file=file, width=40, force_terminal=kind == "terminal", record=kind == "recording")
    say = sayer(console)
    for line in LINES:
        say(line)
    assert file.getvalue() == "".join(f"{line}\n" for line in LINES)
    if kind == "recording":
        assert console.export_text() == file.getvalue()


def test_what_is_captured_or_quiet_reaches_no_file() -> None:
    file = io.StringIO()
    console = Console(file=file)
    with console.capture() as captured:
        sayer(console)("one")
    assert (captured.get(), file.getvalue()) == ("one\n", "")
    sayer(Console(file=file, quiet=True))("two")
    assert file.getvalue() == ""
