"""The rooms of a bench are walked through in one direction."""

import ast
from pathlib import Path

import pytest

import dynotune.bench

FOLDER = Path(dynotune.bench.__file__).parent

ORDER = (
    "statistics", "asking", "workers", "parity", "running", "judging", "keeping", "showing", "command", "foreign",
    "keep",
)  # fmt: skip
"""Each imports only from those before it."""


def imported(code: str) -> set[str]:
    """Rooms of the bench that `code` imports from, in functions too."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dynotune.bench"):
            parts = (node.module or "").split(".")[2:]
            found |= {parts[0]} if parts else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("room", ORDER)
def test_a_room_imports_only_from_rooms_before_it(room: str) -> None:
    files = sorted((FOLDER / room).rglob("*.py")) or [FOLDER / f"{room}.py"]
    before = {*ORDER[: ORDER.index(room)], room}
    found = {str(path.relative_to(FOLDER)): imported(path.read_text(encoding="utf-8")) for path in files}
    assert not {name: rooms - before for name, rooms in found.items() if rooms - before}


def test_every_room_has_its_place() -> None:
    there = {path.stem for path in FOLDER.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    assert there - {"__init__"} == set(ORDER)


def test_imports_are_found_wherever_they_stand() -> None:
    """A control: both ways to import, inside of a function too."""
    code = "from dynotune.bench import keep\ndef f():\n    from dynotune.bench.showing.terminal import show\n"
    assert imported(code) == {"keep", "showing"}
