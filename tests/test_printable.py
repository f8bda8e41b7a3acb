"""Nothing of the data reaches a terminal raw."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.data.progress import loading_progress
from dynotune.printable import BEGINNING, beginning, printable, row_beginning


@given(st.text() | st.binary())
def test_what_is_shown_is_printable(text: str | bytes) -> None:
    assert printable(text).isprintable()
    assert beginning(text).isprintable()
    assert row_beginning({"text": str(text)}).isprintable()


def test_ordinary_text_is_shown_as_it_is() -> None:
    assert printable("caf\u00e9, \u65e5\u672c") == "caf\u00e9, \u65e5\u672c"
    assert printable(b"caf\xc3\xa9 \xff") == "caf\u00e9 \\xff"
    assert row_beginning({"a": ["\u00e9", None]}) == '{"a": ["\u00e9", null]}'


@pytest.mark.parametrize("text", ["x" * 1000, b"x" * 1000, "\u00e9".encode() * 1000])
def test_a_long_row_is_cut_and_says_so(text: str | bytes) -> None:
    assert len(beginning(text)) == BEGINNING + 3
    assert beginning(text).endswith("...")


def test_progress_is_silent_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Logs and pipes get no animation."""
    with loading_progress("Reading", show=True) as advance:
        advance(10)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
