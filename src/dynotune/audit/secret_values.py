"""Values of secrets that stand in audited files, so that no text about those files holds them.

What counts as a secret is `dynotune.config.secrets`' to say; here its values are found in sources of any kind.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from dynotune.audit.facts.project import Project
from dynotune.audit.finding import Finding
from dynotune.config.secrets import HIDDEN, SECRET_KEYS, masked, names_a_secret

_VALUE = r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s,;(){}\[\]\"'`$]+)"
_GIVEN = re.compile(r"(?<!\w)(?P<name>[A-Za-z_][\w.-]{0,200})[\"']?\]?[ \t]*[:=][ \t]*" + _VALUE)
_FLAG = re.compile(r"--(?P<name>[A-Za-z][\w.-]{0,200})[ \t=]+" + _VALUE)
_NO_SECRET = frozenset({"true", "false", "none", "null", "yes", "no", "on", "off", "str", "bool"})
SHORTEST = 6
"""Characters of a value that is looked for everywhere, and not only behind its name."""


class Secrets:
    """Those of a project's files."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts

    @cached_property
    def values(self) -> re.Pattern[str] | None:
        found = {
            match["value"].strip("\"'")
            for file, text in self.texts.items()
            for match in _named(text)
            # Without quotes it is an expression there.
            if match["value"][0] in "\"'" or not file.endswith((".py", ".ipynb"))
        }
        # A word that others use as well says nothing, and hiding it would hide what is said of other things.
        told = [one for one in found if len(one) >= SHORTEST and not (one.isalpha() and one.islower())]
        words = "|".join(re.escape(one) for one in sorted(told, key=len, reverse=True))
        return re.compile(rf"(?<!\w)(?:{words})(?!\w)") if words else None

    def hide(self, text: str) -> str:
        """A sentence without them."""
        return masked(self.values.sub(HIDDEN, text) if self.values is not None else text)

    def hide_source(self, text: str) -> str:
        """Lines of a file without them: there, what stands behind a name that says secret is one as well."""
        spans = sorted({match.span("value") for match in _named(text)}, reverse=True)
        for start, end in spans:
            text = text[:start] + HIDDEN + text[end:]
        return self.hide(text)

    def hide_in(self, finding: Finding) -> Finding:
        """Its changes stay: they are carried out, and shown as a difference that hides them."""
        remedy = finding.remedy
        return replace(
            finding,
            message=self.hide(finding.message),
            deliberate=self.hide(finding.deliberate),
            evidence=replace(finding.evidence, facts=self._plain(finding.evidence.facts)),
            remedy=replace(
                remedy,
                text=self.hide(remedy.text),
                breaks=self.hide(remedy.breaks),
                accuracy=self.hide(remedy.accuracy),
            ),
        )

    def hide_in_project(self, project: Project) -> Project:
        """What parsers say of a file they cannot read may quote it."""
        return replace(project, not_read=[replace(one, why=self.hide_source(one.why)) for one in project.not_read])

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                key: HIDDEN if isinstance(inner, str) and _says_secret(str(key)) else self._plain(inner)
                for key, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return type(value)([self._plain(inner) for inner in value]) if type(value) in (list, tuple) else value
        return self.hide(value) if type(value) is str else value


def _named(text: str) -> Sequence[re.Match[str]]:
    found: Iterable[re.Match[str]] = (match for pattern in (_GIVEN, _FLAG) for match in pattern.finditer(text))
    return [one for one in found if _says_secret(one["name"]) and _may_be(one["value"].strip("\"'"))]


def _says_secret(name: str) -> bool:
    return name in SECRET_KEYS or names_a_secret(name)


def _may_be(value: str) -> bool:
    return bool(value) and value.lower() not in _NO_SECRET and not value.startswith("$")
