"""Where a program reads and where it sets `RANK`, `WORLD_SIZE` and `LOCAL_RANK` itself."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dynotune.audit.facts.script import Call, Script

NAMES = frozenset({"RANK", "WORLD_SIZE", "LOCAL_RANK"})
_NAMED = re.compile(r"""['"](RANK|WORLD_SIZE|LOCAL_RANK)['"]|\b(RANK|WORLD_SIZE|LOCAL_RANK)=""")
_GIVEN = re.compile(
    r"SLURM_|OMPI_|PMI_|PMIX_|MV2_|MPI|\bhostlist\b|\blocal_rank\b|\brank\b|\bworld_size\b|\bworld\b|nprocs|get_rank"
)
"""What a value comes from that differs between processes, or counts them."""


@dataclass(frozen=True, slots=True)
class Sets:
    """A function that puts ranks into the environment."""

    function: str
    node: ast.AST
    """The first statement that does."""


def setters(script: Script) -> Iterator[Sets]:
    """Functions of a file that set one of the variables, from a scheduler's or from what they are given."""
    if "environ" not in script.source or not _NAMED.search(script.source):
        return
    for function in ast.walk(script.tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            found = next((node for node in ast.walk(function) if _sets(node)), None)
            if found is not None:
                yield Sets(function.name, found)


def _sets(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        is_environ = isinstance(target, ast.Subscript) and ast.unparse(target.value).endswith("environ")
        return is_environ and bool(_NAMED.search(ast.unparse(target)) and _GIVEN.search(ast.unparse(node.value)))
    if isinstance(node, ast.For):
        # for name, theirs in {"RANK": "SLURM_PROCID", ...}.items(): os.environ[name] = os.environ[theirs]
        pairs = ast.unparse(node.iter)
        inside = "".join(ast.unparse(one) for one in node.body)
        return bool(
            _NAMED.search(pairs) and _GIVEN.search(pairs) and re.search(r"environ(\[\w+\] = |\.setdefault\()", inside)
        )
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        called = node.value.func
        if called.attr in ("update", "setdefault") and ast.unparse(called.value).endswith("environ"):
            given = ast.unparse(node.value)
            return bool(_NAMED.search(given) and _GIVEN.search(given))
    return False


def read_with_default(call: Call) -> str:
    """The variable that a call reads, where it takes something else if there is none; else empty."""
    if call.name not in ("os.environ.get", "os.getenv", "environ.get") or "0" not in call.arguments:
        return ""
    name = call.arguments["0"].value
    return name if isinstance(name, str) and name in NAMES and len(call.arguments) > 1 else ""
