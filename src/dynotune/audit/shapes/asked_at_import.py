"""`get_world_size() if is_initialized() else 1` where a file is loaded, and there can be no group yet."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.group_of_processes import STARTS, function_of, is_loaded_late, room_of
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected, reached
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake


def asked_at_import(script: Script, project: Project) -> Iterator[Said]:
    """`get_world_size() if is_initialized() else 1` at the top of a file, where there can be no group yet."""
    if any(
        call.name.endswith(("init_process_group", "init_distributed")) and not function_of(call)
        for call in script.calls
    ):
        return
    if is_loaded_late(script, connected(script, project)):
        return
    helpers = {
        node.name: node
        for node in script.tree.body
        if isinstance(node, ast.FunctionDef) and (found := _guarded(node)) and len(found) == 1
    }
    starts = [call for call in script.calls if STARTS.search(call.name)]
    for node, given in _when_loaded(script.tree.body):
        called = [
            helpers[one.func.id]
            for one in _evaluated(given)
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id in helpers
        ]
        pairs = [one for held in (given, *called) for one in _guarded(held)]
        if not pairs or any(start.place.line < node.lineno and not function_of(start) for start in starts):
            continue
        if _is_started_before(script, project, node.lineno) or _is_imported_behind(script, project):
            return
        asked, otherwise = pairs[0]
        yield Finding(
            f"`{asked}` is asked for when the file is loaded, before anything has made the group: it is always"
            f" `{otherwise}`.",
            place=place_of(script, node),
            evidence=Evidence(Level.TEXT, {"default": otherwise}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                'Read `int(os.environ.get("WORLD_SIZE", 1))`, which the launcher sets, or ask once the group is there.',
                accuracy="What is computed from it (accumulation, learning rate, shares of rows) changes.",
            ),
        )
        return


def _when_loaded(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt | ast.expr, ast.expr]]:
    """Values that are worked out when a file is loaded: of names, of fields of classes, and of parameters' defaults."""
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            yield node, node.value
        elif isinstance(node, ast.ClassDef):
            yield from _when_loaded(node.body)
        elif isinstance(node, ast.FunctionDef):
            defaults = (*node.args.defaults, *node.args.kw_defaults)
            yield from ((one, one) for one in defaults if one is not None)


def _is_imported_behind(script: Script, project: Project) -> bool:
    """Another file makes the group where it is loaded, and imports this one behind that."""
    stem = script.file.rpartition("/")[2].removesuffix(".py")
    for one in connected(script, project):
        starts = [call.place.line for call in one.calls if STARTS.search(call.name) and not room_of(call)]
        lines = [
            node.lineno
            for node in one.tree.body
            if isinstance(node, ast.Import | ast.ImportFrom) and re.search(rf"\b{stem}\b", ast.unparse(node))
        ]
        if starts and lines and min(starts) < min(lines):
            return True
    return False


def _is_started_before(script: Script, project: Project, line: int) -> bool:
    """A file that it imports makes the group where that is loaded, or it calls a function that does where it is."""
    near = reached(script, project)
    starts = [(one, call) for one in near for call in one.calls if STARTS.search(call.name)]
    if any(one is not script and not room_of(call) for one, call in starts):
        return True
    makers = {function_of(call) for _, call in starts} - {""}
    return any(
        call.name.rpartition(".")[2] in makers and not room_of(call) and call.place.line < line for call in script.calls
    )


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """What of it runs where it stands: not what a `lambda` holds for later."""
    if isinstance(node, ast.Lambda):
        return
    yield node
    for one in ast.iter_child_nodes(node):
        yield from _evaluated(one)


def _guarded(node: ast.AST) -> list[tuple[str, str]]:
    """What is asked of the group where there is one, and what is taken where there is none: of an expression, or of a
    function that only gives it back."""
    pairs = [
        (one.body, one.orelse)
        for one in _evaluated(node)
        if isinstance(one, ast.IfExp) and "is_initialized()" in ast.unparse(one.test)
    ]
    body = node.body if isinstance(node, ast.FunctionDef) else []
    test, last = (body[-2], body[-1]) if len(body) > 1 else (None, None)
    if isinstance(test, ast.If) and isinstance(last, ast.Return) and "is_initialized()" in ast.unparse(test.test):
        inner = test.body[0].value if isinstance(test.body[0], ast.Return) else None
        pair = (last.value, inner) if "not " in ast.unparse(test.test) else (inner, last.value)
        if pair[0] is not None and pair[1] is not None and not test.orelse:
            pairs.append((pair[0], pair[1]))
    return [
        (ast.unparse(asked), ast.unparse(otherwise))
        for asked, otherwise in pairs
        if re.search(r"get_(world_size|rank)\(\)", ast.unparse(asked)) and isinstance(otherwise, ast.Constant)
    ]
