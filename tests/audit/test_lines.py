"""Promise: a line number means the same line to parsers, editors, and all that is shown."""

import ast

from hypothesis import given
from hypothesis import strategies as st

from dynotune.audit.lines import lines_of


def test_only_line_ends_end_lines() -> None:
    others = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"
    assert lines_of(f"a{others}b\r\nc\rd\n\ne") == [f"a{others}b", "c", "d", "", "e"]
    assert lines_of("") == lines_of("", keepends=True) == []
    assert lines_of("a\n") == ["a"]


@given(st.text(st.sampled_from("a\r\n\x0b\x0c\x85\u2028"), max_size=30))
def test_nothing_is_lost(text: str) -> None:
    assert "".join(lines_of(text, keepends=True)) == text
    assert len(lines_of(text)) == len(lines_of(text, keepends=True))


def test_as_the_parser_of_python_counts() -> None:
    text = "a = '\u2028\x85\x0b\x1c'\n\x0c\r\nhere = 1\n"
    (_, node) = ast.parse(text).body
    assert lines_of(text)[node.lineno - 1] == "here = 1"
