"""Times of steps that begin with the very first one, in other shapes than one clock before a loop: times that are added up
or gathered, a timer around the loop, events of CUDA, and a clock that runs while the model is loaded."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynotune.audit.facts.clocks import CLOCK, speed_since, start_of
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import together
from dynotune.audit.place import Place

_STEPS = re.compile(r"\.backward\(|\.step\(|\b\w*(?:train|one)_step\(|(?<![\w.])step\(|\.training_step\(")
_WARM = re.compile(r"warm(?!up_(?:steps|ratio|num)|up_?iters_lr)|skip|discard|burn|first", re.IGNORECASE)
_SCHEDULE = re.compile(r"sched|learning_rate|(?<![a-z])lrs?(?![a-z])|ratio", re.IGNORECASE)
_EPOCHS = re.compile(r"epoch", re.IGNORECASE)
_ROBUST = r"median|percentile|quantile|trim|sorted\("
_SPEED = re.compile(
    r"/ ?s(?:ec(?:ond)?)?\b|per[_ ]s(?:ec(?:ond)?)?\b|\w_s\b|throughput|speed|tps|ms ?/|s ?/ ?(?:it|step)|(?:per|a)[_ ]step"
    r"|step[_ ]time|\btoks?\b|\btokens\b|\bimages\b|\bsamples\b|it/s",
    re.IGNORECASE,
)
_COMPILES = re.compile(r"torch\.compile\(|torch_compile\s*=\s*True|[Dd]ynamo|max-autotune|torch\.jit|\.compile\(")

Loop = ast.For | ast.While


@dataclass(frozen=True, slots=True)
class Counted:
    place: Place
    """Where a speed is made of the time."""

    start: Place
    """Where the time begins."""

    how: str
    """A sentence's beginning."""

    in_it: str


def first_step_in_the_time(script: Script, project: Project) -> Iterator[Counted]:
    """At most one of a scope, and none of a scope that tells its first steps apart."""
    if not _STEPS.search(script.source) and ".train(" not in script.source:
        return
    lines = script.source.split("\n")
    for scope in (script.tree, *(one for one in ast.walk(script.tree) if isinstance(one, ast.FunctionDef))):
        nodes = list(own_nodes(scope))
        stepping = [one for one in nodes if isinstance(one, Loop) and _STEPS.search(_text(lines, one))]
        if not stepping or _told_apart(script, lines, scope):
            found = None
        else:
            found = next(_gathered(script, lines, nodes, stepping), None) or next(
                _within(script, project, lines, nodes, stepping), None
            )
            found = found or next(_between_events(script, lines, nodes, stepping), None)
        found = found or next(_while_loading(script, nodes, stepping), None)
        if found is not None:
            yield found


MANY = 20
"""Clocks of one scope that are looked at: time may not grow with their number times the file's length."""


def _text(lines: Sequence[str], node: ast.AST) -> str:
    return "\n".join(lines[getattr(node, "lineno", 1) - 1 : getattr(node, "end_lineno", 0) or 0])


def _told_apart(script: Script, lines: Sequence[str], scope: ast.AST) -> bool:
    """The first steps have a word of their own in the code, that is not of the learning rate."""
    return any(
        _WARM.search(line.partition("#")[0]) and not _SCHEDULE.search(line)
        for line in (_text(lines, scope) if isinstance(scope, ast.FunctionDef) else _outside(script)).split("\n")
    )


def _outside(script: Script) -> str:
    """Lines of the file that are in no function."""
    lines = script.source.split("\n")
    for one in ast.walk(script.tree):
        if isinstance(one, ast.FunctionDef):
            for number in range(one.lineno - 1, one.end_lineno or one.lineno):
                lines[number] = ""
    return "\n".join(lines)


def _is_first(loop: Loop, stepping: Sequence[Loop]) -> bool:
    """No other loop of the scope has taken steps before it."""
    return not any((one.end_lineno or 0) < loop.lineno for one in stepping)


def _is_short(script: Script, lines: Sequence[str], loop: Loop) -> bool:
    """So many steps by number, or until one of them: a loop over all data is too long for its first step to matter."""
    counted = isinstance(loop, ast.For) and re.search(r"\brange\(|islice\(", ast.unparse(loop.iter))
    return bool(counted or _COMPILES.search(script.source) or re.search(r"\bbreak\b", _text(lines, loop)))


_SINCE = re.compile(rf"\(?{CLOCK} - (?P<name>[\w.]+)\)?")


def _gathered(
    script: Script, lines: Sequence[str], nodes: Sequence[ast.AST], stepping: Sequence[Loop]
) -> Iterator[Counted]:
    """`times.append(clock() - t)` or `seconds += clock() - t` at every step, of which all make the mean."""
    for loop in stepping:
        if not _is_first(loop, stepping) or not _is_short(script, lines, loop):
            continue
        inner = list(own_nodes(loop))
        under = {id(one) for test in inner if isinstance(test, ast.If) for one in ast.walk(test)}
        spans = {
            ast.unparse(one.targets[0])
            for one in inner
            if isinstance(one, ast.Assign) and _SINCE.fullmatch(ast.unparse(one.value))
        }
        for node in [one for one in inner if isinstance(one, ast.AugAssign | ast.Call)][: 10 * MANY]:
            name = _gets(node, spans) if id(node) not in under else ""
            if not name or not _begins_before(name, nodes, loop, stepping):
                continue
            after = [one for one in nodes if getattr(one, "lineno", 0) > (loop.end_lineno or 0)]
            if re.search(rf"{re.escape(name)}(?:\[|\.pop)|{_ROBUST}", script.source):
                return
            for one in after:
                if (
                    isinstance(one, ast.BinOp | ast.Call)
                    and name in lines[one.lineno - 1]
                    and _is_mean(one, name, lines)
                ):
                    begin = next(part for part in inner if isinstance(part, ast.Assign) and start_of(ast.unparse(part)))
                    yield Counted(
                        place_of(script, one),
                        place_of(script, begin),
                        f"`{ast.unparse(one)[:60]}` is of the times of all steps",
                        _made(script),
                    )
                    return


def _gets(node: ast.AST, spans: set[str]) -> str:
    """The name that a step's time is put to."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        value = ast.unparse(node.value)
        return ast.unparse(node.target) if _SINCE.fullmatch(value) or value in spans else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append" and node.args:
        value = ast.unparse(node.args[0])
        return ast.unparse(node.func.value) if _SINCE.match(value) or value in spans else ""
    return ""


def _begins_before(name: str, nodes: Sequence[ast.AST], loop: Loop, stepping: Sequence[Loop]) -> bool:
    """It begins empty, once, before the loop, and not anew at each epoch."""
    begun = [
        one
        for one in nodes
        if isinstance(one, ast.Assign)
        and any(
            ast.unparse(part) == name
            for target in one.targets
            for part in ast.walk(target)
            if isinstance(part, ast.expr)
        )
    ]
    if len(begun) != 1 or begun[0].lineno > loop.lineno:
        return False
    outer = [
        one
        for one in nodes
        if isinstance(one, ast.For) and one.lineno < begun[0].lineno and (one.end_lineno or 0) >= (loop.end_lineno or 0)
    ]
    return not any(_EPOCHS.search(ast.unparse(one.target)) for one in outer)


def _targets(node: ast.expr) -> Sequence[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple | ast.List) else (node,)


def _is_mean(node: ast.BinOp | ast.Call, name: str, lines: Sequence[str]) -> bool:
    """The mean of a list, or a quotient by a sum, where a line beside it calls it a speed."""
    text = ast.unparse(node)
    whole = re.escape(name)
    mean = rf"sum\({whole}\) / len\({whole}\)|(?:[\w.]+\.)?f?mean\({whole}\)|torch\.tensor\({whole}[^)]*\)\.mean\(\)"
    by = rf"[^\n]+ / (?:sum\({whole}\)|{whole}|np\.sum\({whole}\)|\({whole} / [^()]+\))|{whole} / [\w.()]+"
    near = "\n".join(lines[max(0, node.lineno - 3) : node.lineno + 3])
    is_one = re.fullmatch(f"{mean}|{by}", text) is not None
    return is_one and _SPEED.search(near) is not None


def _within(
    script: Script, project: Project, lines: Sequence[str], nodes: Sequence[ast.AST], stepping: Sequence[Loop]
) -> Iterator[Counted]:
    """`with Timer() as t:` around the loop, and something divided by the seconds that it holds afterwards."""
    for node in nodes:
        if not isinstance(node, ast.With):
            continue
        inside = [one for one in stepping if node.lineno < one.lineno <= (node.end_lineno or 0)]
        if not inside or not _is_first(inside[0], stepping) or not _is_short(script, lines, inside[0]):
            continue
        for item in node.items:
            held = ast.unparse(item.optional_vars) if item.optional_vars is not None else ""
            made = item.context_expr
            if not held or not isinstance(made, ast.Call) or not _takes_time(made, script, project):
                continue
            for one in nodes:
                if (
                    not isinstance(one, ast.BinOp)
                    or not isinstance(one.op, ast.Div)
                    or one.lineno <= (node.end_lineno or 0)
                ):
                    continue
                if re.match(rf"\(?{re.escape(held)}(?:\.|\(|\[)", ast.unparse(one.right)):
                    yield Counted(
                        place_of(script, one),
                        Place(script.file, node.lineno),
                        f"The time of `with {ast.unparse(item)[:40]}` is of all steps",
                        _made(script),
                    )
                    return


def _takes_time(call: ast.Call, script: Script, project: Project) -> bool:
    """A class whose `__enter__`, or a generator that, takes the clock."""
    name = ast.unparse(call.func).rpartition(".")[2]
    for one in together(script, project):
        for node in one.tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                return re.search(CLOCK, ast.unparse(node)) is not None
    return re.search(r"timer|stopwatch", name, re.IGNORECASE) is not None


def _between_events(
    script: Script, lines: Sequence[str], nodes: Sequence[ast.AST], stepping: Sequence[Loop]
) -> Iterator[Counted]:
    """`start.record()` before the loop, and something divided by `start.elapsed_time(end)` behind it."""
    if "elapsed_time(" not in script.source:
        return
    records = [one for one in nodes if isinstance(one, ast.Call) and ast.unparse(one.func).endswith(".record")]
    for node in records[:MANY]:
        called = ast.unparse(node.func)
        loop = next((one for one in stepping if one.lineno > node.lineno), None)
        if (
            loop is None
            or not _is_first(loop, stepping)
            or not _is_short(script, lines, loop)
            or _is_in_a_loop(node, stepping)
        ):
            continue
        since = re.escape(called.removesuffix("record")) + r"elapsed_time\("
        taken = {
            ast.unparse(one.targets[0])
            for one in nodes
            if isinstance(one, ast.Assign) and re.search(since, ast.unparse(one.value))
        }
        for one in nodes:
            if (
                not isinstance(one, ast.BinOp)
                or not isinstance(one.op, ast.Div)
                or one.lineno <= (loop.end_lineno or 0)
            ):
                continue
            right = ast.unparse(one.right).strip("()")
            if re.search(since, right) or re.split(r"\W", right)[0] in taken:
                yield Counted(
                    place_of(script, one),
                    place_of(script, node),
                    "The time between the events is of all steps",
                    _made(script),
                )
                return


def _is_in_a_loop(node: ast.AST, stepping: Sequence[Loop]) -> bool:
    return any(one.lineno <= getattr(node, "lineno", 0) <= (one.end_lineno or 0) for one in stepping)


_LOADS = re.compile(r"(?:^|\.)(?:from_pretrained|load_dataset|load_from_disk|from_config|snapshot_download)$")
_TRAINS = re.compile(r"trainer\w*\.(?:train|fit)$|(?:^|\.)(?:train|fit)$", re.IGNORECASE)


def _while_loading(script: Script, nodes: Sequence[ast.AST], stepping: Sequence[Loop]) -> Iterator[Counted]:
    """The clock starts, the model or the data is loaded, training runs, and a speed is made of all of it."""
    calls = [one for one in nodes if isinstance(one, ast.Call)]
    trains = [one.lineno for one in calls if _TRAINS.search(ast.unparse(one.func)) and len(one.args) < 2]
    trains += [one.lineno for one in stepping]
    lines = [line.partition("  #")[0] for line in script.source.split("\n")]
    starts = [(one, name) for one in nodes if isinstance(one, ast.Assign) and (name := _begun(one))]
    for node, name in starts[:MANY]:
        begin = min((one for one in trains if one > node.lineno), default=0)
        loaded = [one for one in calls if node.lineno < one.lineno < begin and _LOADS.search(ast.unparse(one.func))]
        if not begin or not loaded or sum(other == name for _, other in starts) != 1:
            continue
        end = max(getattr(one, "end_lineno", 0) or 0 for one in nodes)
        read = speed_since(lines, begin, min(end, len(lines)), re.escape(name))
        if read:
            yield Counted(
                Place(script.file, read, 1, read, len(lines[read - 1]) + 1),
                place_of(script, node),
                f"The clock of this speed starts before `{ast.unparse(loaded[0].func)[-50:]}(...)`",
                "loading, and the first step's memory allocation and warm-up",
            )
            return


def _begun(node: ast.Assign) -> str:
    """The name that gets the time."""
    return start_of(ast.unparse(node)) if isinstance(node.value, ast.Call | ast.Tuple) else ""


def _made(script: Script) -> str:
    compiled = "compilation, " if _COMPILES.search(script.source) else ""
    return f"the first one too: {compiled}memory allocation and warm-up"
