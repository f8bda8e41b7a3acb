"""Promise: every rule has a page that is current, in the navigation, with both examples, and its command shows it."""

import json
import re
from pathlib import Path

import pytest

from dynotune.audit.pages import navigation, pages
from dynotune.audit.registry import rules
from dynotune.cli import run

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", pages())
def test_the_page_is_current(name: str) -> None:
    """Mend with `python -m dynotune.audit.pages docs`."""
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == pages()[name]


def test_the_navigation_is_current_and_no_page_is_left_over() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert navigation(text) == text
    found = {f"rules/{path.name}" for path in (ROOT / "docs" / "rules").glob("*.md")}
    assert found == set(pages())


@pytest.mark.parametrize("code", rules())
def test_a_page_has_all_parts(code: str) -> None:
    page = pages()[f"rules/{code}.md"]
    for part in (
        "What it is",
        "Why it matters",
        "How it is detected",
        "How to see that it is so",
        "When it may be meant so",
    ):
        assert f"## {part}" in page
    rule = rules()[code]
    for example in (rule.bad, *rule.also_bad, rule.good):
        for text in example.files.values() if example else ():
            assert text.rstrip("\n") in page
    assert len(re.findall(r"^(```|````)", page, re.MULTILINE)) % 2 == 0


def test_the_command_shows_one_a_family_and_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rule", "OPT001"]) == 0
    assert capsys.readouterr().out.startswith("# OPT001: unfused-optimizer")
    assert run(["rule", "unfused-optimizer", "--json"]) == 0
    assert "## What it is" in json.loads(capsys.readouterr().out)[0]["page"]
    assert run(["rule"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(rules())
    assert run(["rule", "NIX001"]) == 2
