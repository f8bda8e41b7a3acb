"""The rooms of the package stand one above the other, and what a room is made of lies below it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import dynotune

FOLDER = Path(dynotune.__file__).parent

ORDER = (
    # words and the machine
    "errors", "_version", "say", "foreign", "unmet", "mounts", "cache_folder", "command_line", "printable", "show",
    "manifest", "terminal",
    # what is asked for, and for which examples
    "config", "isolated", "accelerators", "data", "plan", "objectives", "environment",
    # what computes, and what is known of it
    "model", "parallel", "measure", "speedups", "results", "reference", "estimate", "execution",
    # the run, and what surrounds it
    "report", "train", "prepare", "merge", "handbook", "profile", "bench", "pages", "demo", "audit",
    # commands
    "cli_commands", "cli_keys", "cli_config", "cli_measure", "cli_bench", "cli_profile", "cli_report", "cli_audit", "cli",
    "__init__", "__main__",
)  # fmt: skip
"""Each imports only from those before it."""

LATE = {
    ("config", "speedups"): "names of speed-ups are checked where a configuration names some",
    ("data", "plan"): "a store tells how well its rows would pack",
    ("speedups", "execution"): "how far ahead the feed is, for what the table says",
}
"""Looked up inside of a function, when nothing depends on it any more, and why."""

OF_TYPES = {
    ("objectives", "model"): "scores of sequences, as the head gives them",
    ("report", "merge"): "the proof that a card tells of",
}
"""Named in annotations alone."""


def imported(code: str) -> Iterator[tuple[str, str]]:
    """Rooms that `code` imports from, and where that stands: at the `head`, `late` in a function, or for `types`."""
    tree = ast.parse(code)
    where: dict[ast.AST, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            where |= dict.fromkeys(ast.walk(node), "late")
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            where |= dict.fromkeys(ast.walk(node), "types")
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "dynotune" else [module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith("dynotune."):
                yield name.split(".")[1], where.get(node, "head")


def upwards(code: str, room: str) -> set[tuple[str, str, str]]:
    here = ORDER.index(room)
    return {(room, other, how) for other, how in imported(code) if ORDER.index(other) > here}


def test_a_room_imports_only_from_rooms_below_it() -> None:
    found: set[tuple[str, str, str]] = set()
    for path in FOLDER.rglob("*.py"):
        found |= upwards(path.read_text(encoding="utf-8"), path.relative_to(FOLDER).parts[0].removesuffix(".py"))
    assert found == {(*pair, "late") for pair in LATE} | {(*pair, "types") for pair in OF_TYPES}


def test_every_room_has_its_place() -> None:
    there = {path.stem for path in FOLDER.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    assert there == set(ORDER)


def test_what_runs_upwards_is_seen() -> None:
    """A control: at the head of a file, in a function, for types, by each way to import."""
    code = (
        "from typing import TYPE_CHECKING\nimport dynotune.train.loop\nfrom dynotune import bench\n"
        "if TYPE_CHECKING:\n    from dynotune.audit.rule import Rule\n"
        "def f():\n    from dynotune.demo.run import run\n"
    )
    found = {("plan", "train", "head"), ("plan", "bench", "head"), ("plan", "demo", "late"), ("plan", "audit", "types")}
    assert upwards(code, "plan") == found
    assert upwards(code, "cli") == set()
