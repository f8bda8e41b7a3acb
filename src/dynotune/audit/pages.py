"""Writes the pages of rules, and their part of the navigation: `python -m dynotune.audit.pages docs`."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from dynotune.audit.explain import LEVELS, page
from dynotune.audit.registry import rules
from dynotune.audit.rule import FAMILIES

WRITTEN = "<!-- Written by `python -m dynotune.audit.pages docs`. A test fails when it is out of date. -->\n"
FOLDER = "rules"
_NAVIGATION = re.compile(r"^  - Rules of the audit:\n(?:      - .*\n)*", re.MULTILINE)


def pages() -> Mapping[str, str]:
    """Path below the documentation's folder to content."""
    return {f"{FOLDER}/index.md": _index(), **{f"{FOLDER}/{code}.md": _page(code) for code in rules()}}


def _page(code: str) -> str:
    head, _, rest = page(rules()[code]).partition("\n\n")
    return f"{head}\n\n{WRITTEN}\n{rest}"


def _index() -> str:
    lines = [
        "# Rules of the audit",
        "",
        WRITTEN,
        f"{len(rules())} rules, which [`dynotune audit`](../audit.md) checks. `dynotune rule CODE` shows the same pages.",
        "",
        "How much is known is said with each finding:",
        "",
        "| level | it rests on |",
        "| --- | --- |",
        *(f"| E{int(level)} | {text} |" for level, text in LEVELS.items()),
    ]
    for family, title in FAMILIES.items():
        of = [rule for code, rule in rules().items() if code.startswith(family)]
        if of:
            lines += [
                "",
                f"## {family}: {title}",
                "",
                "| code | name | finds | asked about |",
                "| --- | --- | --- | --- |",
            ]
        lines += [
            f"| [{rule.code}]({rule.code}.md) | {rule.name} | {rule.summary.replace('|', chr(92) + '|')} | {rule.subject} |"
            for rule in of
        ]
    return "\n".join(lines) + "\n"


def navigation(text: str) -> str:
    """`mkdocs.yml` with every page of a rule in it. Raises `ValueError` where there is no place for them."""
    part = ["  - Rules of the audit:", f"      - All rules: {FOLDER}/index.md"]
    part += [f"      - {code} {rule.name}: {FOLDER}/{code}.md" for code, rule in rules().items()]
    after, count = _NAVIGATION.subn("\n".join(part) + "\n", text)
    if count != 1:
        raise ValueError("mkdocs.yml has no part `Rules of the audit`")
    return after


def main(folder: Path) -> None:
    """Write every page below `folder`, and the navigation beside it; pages of rules that are gone go."""
    made = pages()
    for path in (folder / FOLDER).glob("*.md"):
        if f"{FOLDER}/{path.name}" not in made:
            path.unlink()
    for name, content in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    listed = folder.parent / "mkdocs.yml"
    listed.write_text(navigation(listed.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
