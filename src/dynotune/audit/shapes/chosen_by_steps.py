"""Programs and shell loops that go over sizes of a batch, or numbers of GPUs, and judge them by steps a second."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.clocks import CLOCK
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import together
from dynotune.audit.lines import lines_of
from dynotune.audit.place import Place

_SIZE = re.compile(
    r"(?:^|_)(?:bs|bsz|mbs|micro\w*|batch_?sizes?\w*|per_device\w*|len|length|seq_?len|max_len|seqlen|cutoff\w*)(?:$|_)",
    re.IGNORECASE,
)
"""A variable or key that decides how much a step holds."""

_HOLDS = re.compile(
    r"batch|\bbs|bsz|micro|rows|numel|tok|\blen|length|size|shape|sample|seq|example|image", re.IGNORECASE
)
_STEP_RATE = re.compile(
    r"\b(?:its?|iters?|iterations|steps?)(?:/s|_per_s|_per_second| per s|ps\b)|steps_per_sec", re.IGNORECASE
)
_ORDERS = frozenset({"max", "min", "sorted", "nlargest"})
_MANY = 50
"""Loops of a scope that are looked at."""


def chosen_by_steps(script: Script, project: Project) -> Iterator[Place]:
    """Where the choice is made, at most one."""
    if not re.search(r"\bmax\(|\bmin\(|sort|[<>]", script.source):
        return
    for scope in (script.tree, *(one for one in ast.walk(script.tree) if isinstance(one, ast.FunctionDef))):
        nodes = list(own_nodes(scope))
        for loop in [one for one in nodes if isinstance(one, ast.For)][:_MANY]:
            sizes = _varied(loop, script, project)
            inner = list(own_nodes(loop)) if sizes else []
            rates = {name for node in inner for name in _rates(node, inner, sizes, script)}
            if rates and (chosen := _choice(nodes, loop, rates)) is not None:
                yield place_of(script, chosen)
                return


def _varied(loop: ast.For, script: Script, project: Project) -> set[str]:
    """Names of the loop that hold other sizes at each turn; empty: its turns do not differ by what a step holds."""
    targets = {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
    named = {one for one in targets if _SIZE.search(one)}
    if named:
        counts = isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) in ("range", "enumerate")
        return set() if counts and len(getattr(loop.iter, "args", ())) == 1 else named
    used = {
        (one.value.id, str(key))
        for one in ast.walk(loop)
        if isinstance(one, ast.Subscript | ast.Attribute)
        and isinstance(one.value, ast.Name)
        and one.value.id in targets
        for key in [one.attr if isinstance(one, ast.Attribute) else getattr(one.slice, "value", "")]
        if _SIZE.search(str(key))
    }
    over = next((one.id for one in ast.walk(loop.iter) if isinstance(one, ast.Name)), "")
    for held in _candidates(loop.iter, over, script, project) if used else ():
        for owner, key in sorted(used):
            if len(set(_values(held, key))) > 1:
                return {owner}
    return set()


def _candidates(given: ast.expr, name: str, script: Script, project: Project) -> Iterator[ast.expr]:
    if isinstance(given, ast.List | ast.Tuple | ast.Dict):
        yield given
        return
    for one in together(script, project) if name else ():
        for node in one.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                yield node.value


def _values(held: ast.expr, key: str) -> Iterator[str]:
    """What each candidate has for the key, in dictionaries or by keyword."""
    for node in ast.walk(held):
        if isinstance(node, ast.Dict):
            for one, value in zip(node.keys, node.values, strict=True):
                if isinstance(one, ast.Constant) and one.value == key:
                    yield ast.unparse(value)
        elif isinstance(node, ast.keyword) and node.arg == key:
            yield ast.unparse(node.value)


def _rates(node: ast.AST, inner: Sequence[ast.AST], sizes: set[str], script: Script) -> Iterator[str]:
    """Names that get steps a second: a count by a time, what a program prints as `it/s`, or what a function returns so."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return
    target, value = node.targets[0], node.value
    owner = target.value if isinstance(target, ast.Subscript) else target
    name = ast.unparse(owner)
    if _is_rate(value, inner) or (isinstance(value, ast.Call) and _STEP_RATE.search(_strings(value))):
        yield name
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        given = {one.id for part in (*value.args, *(word.value for word in value.keywords)) for one in ast.walk(part)
                 if isinstance(one, ast.Name)}  # fmt: skip
        for one in script.tree.body if given & sizes else ():
            if isinstance(one, ast.FunctionDef) and one.name == value.func.id:
                held = list(own_nodes(one))
                if any(
                    isinstance(part, ast.Return) and part.value is not None and _is_rate(part.value, held)
                    for part in held
                ):
                    yield name


def _strings(node: ast.AST) -> str:
    return " ".join(one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))


def _is_rate(value: ast.expr, near: Sequence[ast.AST]) -> bool:
    """A quotient of a number and the time since, whose number has nothing of what a step holds."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Div) or _HOLDS.search(ast.unparse(value.left)):
        return False
    divisor = ast.unparse(value.right)
    if re.search(CLOCK, divisor):
        return True
    spans = {
        ast.unparse(one.targets[0])
        for one in near
        if isinstance(one, ast.Assign) and re.search(rf"{CLOCK} - |elapsed_time\(", ast.unparse(one.value))
    }
    return divisor in spans


def _choice(nodes: Sequence[ast.AST], loop: ast.For, rates: set[str]) -> ast.AST | None:
    """What takes the best of them: not of a product with what a step holds."""
    for node in nodes:
        if getattr(node, "lineno", 0) < loop.lineno:
            continue
        orders = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _ORDERS
        compares = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Gt | ast.Lt | ast.GtE | ast.LtE)
        if not orders and not compares:
            continue
        text = ast.unparse(node)
        used = [one for one in rates if re.search(rf"(?<![\w.]){re.escape(one)}\b", text)]
        by_itself = all(
            not re.search(rf"\b{re.escape(one)}(?:\[[^\]]*\])? \*|\* {re.escape(one)}\b", text) for one in used
        )
        if used and by_itself and (orders or _compares_with_best(node)):
            return node
    return None


def _compares_with_best(node: ast.AST) -> bool:
    return re.search(r"best|top|fast|max|record", ast.unparse(node), re.IGNORECASE) is not None


_LOOP = re.compile(
    r"\bfor\s+(?P<name>\w*(?:BSZ?|MBS|BATCH\w*|MICRO\w*|LEN(?:GTH)?|SEQ\w*|bsz?|mbs|batch\w*|micro\w*|len(?:gth)?|seq\w*))\s+in\s+"
    r"(?P<over>[^;\n]+)"
)
_PRINTED = re.compile(r"\bit/s\b|\bits?/sec|\bsteps?/s(?:ec)?\b|steps_per_second|iterations? per s", re.IGNORECASE)
_REAL = re.compile(r"(?:tok\w*|samples?|rows|sequences|images)(?:/s|_per_s|\s?per\s?s)", re.IGNORECASE)
_PICKS = re.compile(r"\bsort\s+-|\bbc\b|-gt\b|\bbest\w*=|\bfastest\w*=|awk\b.*>", re.IGNORECASE)


def picked_by_a_shell(project: Project) -> Iterator[Place]:
    """`for BS in 2 8; do ... grep 'it/s' ...; sort -rn`: the line that takes the best."""
    for file, text in project.texts.items():
        if (
            file.endswith((".py", ".ipynb", ".json", ".yaml", ".yml"))
            or _REAL.search(text)
            or not _PRINTED.search(text)
        ):
            continue
        loop = next((one for one in _LOOP.finditer(text) if len(one["over"].split()) > 1 or "$" in one["over"]), None)
        start = text.count("\n", 0, loop.start()) + 1 if loop is not None else 0
        for number, line in enumerate(lines_of(text), 1) if start else ():
            if number >= start and _PICKS.search(line.partition(" # ")[0]):
                yield Place(file, number)
                return


_SUGGESTS = re.compile(r"suggest_\w+\(\s*['\"]\w*(?:batch|bs|micro|len|seq)\w*['\"]", re.IGNORECASE)
_RATE_NAME = re.compile(r"(?:steps?|it(?:er(?:ation)?)?s?)_per_s(?:ec(?:ond)?)?\b|\bit/s", re.IGNORECASE)


def swept_by_a_tool(project: Project) -> Iterator[Place]:
    """A sweep that goes over sizes and maximises steps a second: W&B's file, or a function that Optuna asks."""
    for config in project.configs:
        metric, parameters = config.values.get("metric"), config.values.get("parameters")
        judged = isinstance(metric, Mapping) and _RATE_NAME.search(str(metric.get("name"))) is not None
        sizes = isinstance(parameters, Mapping) and any(
            _SIZE.search(str(key)) or "batch" in str(key) for key in parameters
        )
        if judged and sizes:
            yield config.places.get("metric.name", Place(config.file))
    for script in project.scripts:
        for node in ast.walk(script.tree) if _SUGGESTS.search(script.source) else ():
            if isinstance(node, ast.FunctionDef) and _SUGGESTS.search(ast.unparse(node)):
                last = node.body[-1]
                if (
                    isinstance(last, ast.Return)
                    and last.value is not None
                    and _RATE_NAME.search(ast.unparse(last.value))
                ):
                    yield place_of(script, last)


_KEY = re.compile(r"\[['\"](?:its?|iters?|steps?)(?:_per_s(?:ec(?:ond)?)?|_s|ps)?['\"]\]$", re.IGNORECASE)
_GPUS = re.compile(r"\bGPUs?\b|\bworld_?size\b|\bnproc|\bdata.parallel\b", re.IGNORECASE)
_BY_RANKS = re.compile(
    r"//?\s?(?:world\w*|\w*world_size\w*|gpus|n_gpus|num_processes|ranks)\b|get_world_size\(\)\s?\)? ?\*|\* ?world",
    re.IGNORECASE,
)


def divided_across_gpus(script: Script, project: Project) -> Iterator[tuple[Place, str]]:
    """`four["its"] / one["its"]` of runs on other numbers of GPUs, each of which takes rows of its own at every step."""
    if not _GPUS.search(script.source) or not re.search(r"speed-?_?up|faster|scal", script.source, re.IGNORECASE):
        return
    writes = [
        one for one in project.scripts if re.search(r"get_world_size|WORLD_SIZE|num_processes|deepspeed", one.source)
    ]
    if not writes or any(_BY_RANKS.search(one.source) for one in (*writes, script)):
        return
    for node in ast.walk(script.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            left, right = ast.unparse(node.left), ast.unparse(node.right)
            if left != right and _KEY.search(left) and _KEY.search(right):
                yield place_of(script, node), ast.unparse(node)
                return
