"""Pairs of a data file that a project names, whose two sides are the same, and that nothing takes out."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynotune.audit.facts.copied_input import given_in
from dynotune.audit.facts.job import Job, Method
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import FUNCTIONS
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected
from dynotune.audit.place import Place

_HELD_OUT = re.compile(r"(?:^|[^a-z])(?:test|val|valid\w*|eval\w*|dev|held\w*)(?:[^a-z]|$)", re.IGNORECASE)
_SIDES = ("chosen", "rejected")


@dataclass(frozen=True, slots=True)
class Same:
    place: Place
    """Where the sides are made of the columns; else the job's own."""

    rows: Place
    """The first such row."""

    columns: tuple[str, str]
    many: int
    read: int


def pairs_that_are_the_same(project: Project) -> Iterator[Same]:
    """Of each file, once."""
    said: set[str] = set()
    for job in project.jobs if project.first_rows else ():
        if job.method is not Method.DPO:
            continue
        start = next((one for one in project.scripts if one.file in job.files), None)
        program = connected(start, project) if start is not None else ()
        made = [one for script in program for one in _made_of(script)] or [(_SIDES, job.home)]
        for columns, there in made:
            if any(_compares(one, columns) for one in program):
                continue
            for file, rows in project.first_rows.items():
                if file in said or _HELD_OUT.search(file) or not _is_named(file, job, project):
                    continue
                pairs = [row for row in rows if all(row.get(one) for one in columns)]
                same = [number for number, row in enumerate(rows, 1) if row in pairs and _is_same(row, columns)]
                if same and len(pairs) == len(rows):
                    said.add(file)
                    yield Same(there, Place(file, same[0]), columns, len(same), len(rows))


def _is_same(row: object, columns: tuple[str, str]) -> bool:
    assert hasattr(row, "__getitem__")
    return bool(row[columns[0]] == row[columns[1]])


def _is_named(file: str, job: Job, project: Project) -> bool:
    """By a file of the job's, its command's or its configuration's among them."""
    last = file.rpartition("/")[2]
    return any(last in project.texts.get(one, "") for one in job.files)


def _made_of(script: Script) -> Iterator[tuple[tuple[str, str], Place]]:
    """The columns that `chosen` and `rejected` are made of, each in the same way."""
    rooms = [script.tree, *(node for node in ast.walk(script.tree) if isinstance(node, FUNCTIONS))]
    given = {id(node): room for room in rooms for node in ast.walk(room) if isinstance(node, ast.Dict)}
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.Dict):
            continue
        entries = {
            key.value: value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
        if set(_SIDES) <= set(entries):
            by_name = given_in(given[id(node)])
            one, two = (_column(entries[side], entries[other], by_name) for side, other in (_SIDES, _SIDES[::-1]))
            alike = one and two and one[1].replace(one[0], "") == two[1].replace(two[0], "")
            if one and two and alike:
                yield (one[0], two[0]), place_of(script, node)
        named = {value.value: key for key, value in entries.items() if isinstance(value, ast.Constant)}
        if set(_SIDES) <= set(named):  # `rename_columns({"good": "chosen", "bad": "rejected"})`
            yield (str(named["chosen"]), str(named["rejected"])), place_of(script, node)


def _column(value: ast.expr, other: ast.expr, given: object) -> tuple[str, str] | None:
    """The one column that this side has and the other has not, and how the side is written."""
    value, other = (_once(one, given) for one in (value, other))
    own = [one for one in _read(value) if one not in _read(other)]
    return (own[0], ast.unparse(value)) if len(own) == 1 else None


def _once(value: ast.expr, given: object) -> ast.expr:
    values: Sequence[ast.expr] = (
        given.get(value.id, ()) if isinstance(value, ast.Name) and isinstance(given, dict) else ()
    )
    return values[0] if len(values) == 1 else value


def _read(value: ast.expr) -> list[str]:
    """Columns that an expression reads: `row["good"]`, `row.get("good")`."""
    found = []
    for node in ast.walk(value):
        key = node.slice if isinstance(node, ast.Subscript) else None
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            key = node.args[0]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            found.append(key.value)
    return found


def _compares(script: Script, columns: tuple[str, str]) -> bool:
    """Something asks whether both sides are the same."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Compare) and any(isinstance(one, ast.Eq | ast.NotEq | ast.Is) for one in node.ops):
            text = ast.unparse(node)
            if any(all(one in text for one in both) for both in (columns, _SIDES)):
                return True
    return False
