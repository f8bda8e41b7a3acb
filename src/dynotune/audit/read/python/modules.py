"""All Python files of a project: a value is followed from one to another, and to the commands that start them."""

import ast
from collections.abc import Callable, Mapping

from dynotune.audit.facts.setting import Setting
from dynotune.audit.read.python.module import Module, Site
from dynotune.audit.read.python.value import Value

MOST_CALLS = 8
"""Of one function, looked at from other files."""


class Modules(dict[str, Module]):
    """By file, as the project has them. It fills while files are read, and is asked when all are."""

    def __init__(self) -> None:
        super().__init__()
        self.started_with: dict[str, Mapping[str, Value]] = {}
        """By script: what the commands that start it give, by flag (`config`), `$NAME` for variables of the environment, `1`
        for the first word that belongs to no flag. Only where all of them agree."""

        self.started_variously: frozenset[str] = frozenset()
        """Scripts that several commands start, each with flags of its own."""

        self.exported: Mapping[str, Setting] = {}
        """Variables of the environment that the commands set which start these files: only what all of them agree on."""

        self.takes: Callable[[str, str], bool | None] = lambda name, key: None
        """Whether a library's configuration class, by its qualified name, takes a key. None: no class that is known."""

        self._known: dict[ast.expr, Value] = {}
        self._known_of = 0

        self.led: dict[tuple[str, str, int], tuple[Module, str] | None] = {}
        """Where dotted names lead to, by the file that says them and how many files there were."""

        self.starters: dict[tuple[str, str, int], str] = {}
        """The files that make commands of others' functions, by the function's file and name and how many files there
        were."""

        self._calls: dict[str, list[tuple[Module, Site]]] = {}
        self._indexed = 0

    @property
    def known(self) -> dict[ast.expr, Value]:
        """What expressions of these files come to, as far as it was asked since the last of them was read."""
        if self._known_of != len(self):
            self._known, self._known_of = {}, len(self)
        return self._known

    def started(self, file: str, with_: Mapping[str, Value]) -> "Modules":
        """The same files, one of them started by one command."""
        other = Modules()
        other.update(self)
        other.takes, other.exported = self.takes, self.exported
        other.started_with = {**self.started_with, file: with_}
        other.started_variously = self.started_variously - {file}
        return other

    def calls_of(self, name: str) -> list[tuple[Module, Site]]:
        """In any file, of whatever is called by this last part of a name, the files' own included."""
        if self._indexed != len(self):
            self._calls, self._indexed = {}, len(self)
            for module in self.values():
                for called, sites in module.calls_by_name.items():
                    self._calls.setdefault(called, []).extend((module, site) for site in sites)
        return self._calls.get(name, [])
