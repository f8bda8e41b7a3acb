"""Promise: a finding is suppressed by a comment with a reason and by nothing else; what suppresses nothing is said."""

import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.audit.facts.project import Project
from dynotune.audit.judging.suppression import parse, suppressions
from dynotune.audit.place import Place
from dynotune.audit.read.configs import read_config
from dynotune.audit.read.python import read_script
from tests.audit.made_up import a_finding

TODAY = datetime.date(2026, 11, 22)
HERE = Place("sft.yaml", 3)


def covered(text: str, line: int, code: str = "OPT001", end_line: int = 0) -> bool:
    project = Project(".", texts={"sft.yaml": text})
    finding = a_finding(code, Place("sft.yaml", line, end_line=end_line))
    return any(one.covers(finding) for one in suppressions(project, TODAY))


@pytest.mark.parametrize(
    ("file", "text", "is_covered"),
    [
        ("a.sh", "run --optim x  # dynotune: ignore[OPT001] slower here\n", True),
        ("a.sh", 'run --optim x "of # dynotune: ignore[OPT001] slower here"\n', False),
        ("a.sh", "run --optim x 'of # dynotune: ignore[OPT001] slower here'\n", False),
        ("a.sh", "cat <<E\n# dynotune: ignore[OPT001] slower here\nE\nrun --optim x\n", False),
        ("a.sh", "run --optim x\necho '\n# dynotune: ignore[OPT001] slower here\n'\n", False),
        ("Makefile", "\trun --optim x  # dynotune: ignore[OPT001] slower here\n", True),
        ("Makefile", '\trun --optim x "of # dynotune: ignore[OPT001] slower here"\n', False),
        ("a.toml", 'optim = "x"  # dynotune: ignore[OPT001] slower here\n', True),
        ("a.toml", 'optim = "x # dynotune: ignore[OPT001] slower here"\n', False),
        ("a.toml", 'a = """\n# dynotune: ignore[OPT001] slower here"""\noptim = "x"\n', False),
        ("a.yaml", "optim: x  # Dynotune: Ignore[OPT001] slower here\n", True),
        ("a.yaml", "optim: 'x # dynotune: ignore[OPT001] slower here'\n", False),
    ],
)
def test_what_stands_in_a_string_suppresses_nothing(file: str, text: str, is_covered: bool) -> None:
    config = None if file.endswith(("sh", "file")) else read_config(Path(file), text, Path())
    project = Project(".", configs=[config] if config is not None else [], texts={file: text})
    line = next(number for number, words in enumerate(text.split("\n"), 1) if "optim" in words)
    found = any(one.covers(a_finding("OPT001", Place(file, line))) for one in suppressions(project, TODAY))
    assert found is is_covered


def test_lines_are_those_of_parsers() -> None:
    assert covered("a: '\u2028\x85'\nb: 2 # dynotune: ignore[OPT001] slower here\n", 2)


@pytest.mark.parametrize(
    ("text", "line", "code", "is_covered"),
    [
        ("a: 1\nb: 2 # dynotune: ignore[OPT001] slower here\nc: 3\n", 2, "OPT001", True),
        ("a: 1\n# dynotune: ignore[OPT001] slower here\nb: 2\nc: 3\n", 3, "OPT001", True),
        ("a: 1\n# dynotune: ignore[OPT001] slower here\n# and more\nb: 2\nc: 3\n", 4, "OPT001", True),
        ("a: 1\nb: 2 # dynotune: ignore[OPT] slower here\n", 2, "OPT001", True),
        ("a: 1\nb: 2 # dynotune: ignore[ATT001, opt001]: slower here\n", 2, "OPT001", True),
        ("# dynotune: ignore-file[OPT001] slower here\n\na: 1\nb: 2\n", 4, "OPT001", True),
        ("#!/bin/sh\n# dynotune: ignore-file[OPT001] slower here\na\nb\n", 4, "OPT001", True),
        ("a: 1\nb: 2 # dynotune: ignore[OPT001] slower until 2026-11-22\n", 2, "OPT001", True),
        # and not:
        ("a: 1\nb: 2 # dynotune: ignore[OPT001] slower until 2026-11-21\n", 2, "OPT001", False),
        ("a: 1\nb: 2 # dynotune: ignore[OPT001]\n", 2, "OPT001", False),
        ("a: 1\nb: 2 # dynotune: ignore[OPT001] until 2027-01-31\n", 2, "OPT001", False),
        ("a: 1\nb: 2 # dynotune: ignore[OPT001] slower until tomorrow-ish\n", 2, "OPT001", False),
        ("a: 1\nb: 2 # dynotune: ignore slower here\n", 2, "OPT001", False),
        ("a: 1\nb: 2 # dynotune: ignore[OPT002] slower here\n", 2, "OPT001", False),
        ("a: 1 # dynotune: ignore[OPT001] of this line\nb: 2\n", 2, "OPT001", False),
        ("# dynotune: ignore[OPT001] of the next line\na: 1\nb: 2\n", 3, "OPT001", False),
        ("a: 1\n# dynotune: ignore-file[OPT001] too late\nb: 2\nc: 1\n", 4, "OPT001", False),
    ],
)
def test_whom_a_comment_covers(text: str, line: int, code: str, is_covered: bool) -> None:
    assert covered(text, line, code) is is_covered


def test_a_call_of_many_lines_is_covered_where_it_begins_or_ends() -> None:
    text = "call(\n    a=1,  # dynotune: ignore[OPT001] of this argument\n)  # dynotune: ignore[OPT002] of all\n"
    assert covered(text, 1, "OPT002", end_line=3)
    assert not covered(text, 1, "OPT001", end_line=3)


@pytest.mark.parametrize(
    ("text", "is_covered"),
    [
        ('"""What it does.\n\nAnd how.\n"""\n\n# dynotune: ignore-file[OPT001] slower here\n\nimport a\n', True),
        ('#!/usr/bin/env python\n"""One line."""  # dynotune: ignore-file[OPT001] slower here\nimport a\n', True),
        ('"""One line."""\nimport a\n# dynotune: ignore-file[OPT001] too late\n', False),
        ('import a\n"""No docstring."""\n# dynotune: ignore-file[OPT001] too late\n', False),
        ('"""# dynotune: ignore-file[OPT001] in the docstring itself"""\nimport a\n', False),
        ('"""Twice."""\n"""No docstring."""\n# dynotune: ignore-file[OPT001] too late\n', False),
    ],
)
def test_a_comment_on_the_whole_file_may_stand_behind_its_docstring(text: str, is_covered: bool) -> None:
    script = read_script(Path("a.py"), text, Path())
    project = Project(".", scripts=[script], texts={"a.py": text})
    found = a_finding("OPT001", Place("a.py", 9))
    assert any(one.covers(found) for one in suppressions(project, TODAY)) is is_covered


def test_json_has_no_comments() -> None:
    project = Project(".", texts={"a.json": '{"x": "# dynotune: ignore[OPT001] not a comment"}'})
    assert not list(suppressions(project, TODAY))


REASONS = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="#[]-:,;()"), min_size=1
)


@given(
    codes=st.lists(st.from_regex(r"[A-Z]{3}[0-9]{3}|[A-Z]{3}", fullmatch=True), min_size=1, max_size=3),
    words=st.lists(REASONS, min_size=1, max_size=5),
    until=st.none() | st.dates(min_value=TODAY),
    whole=st.booleans(),
)
def test_what_is_written_is_read(codes: list[str], words: list[str], until: datetime.date | None, whole: bool) -> None:
    reason = " ".join(words)
    if "until" in words:
        return
    tail = f" until {until.isoformat()}" if until else ""
    one = parse(f" dynotune: ignore{'-file' if whole else ''}[{', '.join(codes)}] {reason}{tail}", HERE, TODAY)
    assert one is not None
    assert (one.words, one.reason, one.until, one.whole_file, one.wrong) == (frozenset(codes), reason, until, whole, "")


@given(st.text())
def test_no_comment_makes_it_fail(text: str) -> None:
    one = parse(text, HERE, TODAY)
    assert one is None or one.wrong or (one.words and one.reason)
    after = parse(f"dynotune: ignore{text}", HERE, TODAY)
    assert after is None or after.wrong or (after.words and after.reason)
