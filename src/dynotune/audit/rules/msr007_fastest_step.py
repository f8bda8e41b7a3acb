"""MSR007: a throughput is that of the fastest step."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_COUNTED = re.compile(
    r"tok|sample|row|example|step|seq|batch|iter|flop|image|img|clip|frame|pair|^[\d_* ()]+$|\bbs\b|\b[BN]\b",
    re.IGNORECASE,
)
_SPEED = re.compile(r"per[_ ]s|/s\b|a second|speed|throughput|tps\b|rate|tok_s|mfu", re.IGNORECASE)
_CLOCK = re.compile(
    r"time\(\)|perf_counter|monotonic|elapsed|elapse_time|(?<![a-z])(dt|took|durations?|seconds)(?![a-z])|times?\b"
)
_SAYS_SO = re.compile(
    r"\b(peak|best|max|fastest|upper)[_ ]?\w*(tok|speed|throughput|rate|tps|samples)|benchmark|\bbench\b", re.IGNORECASE
)
_LEAST = re.compile(r"(?:np\.|torch\.)?min\([\w.\[\]:]*(time|dt|took|duration|elapsed)\w*\)")
_TRAINS = re.compile(r"Trainer\(|\.backward\(|TrainerCallback")


def check(script: Script, project: Project) -> Iterator[Said]:
    if "/" not in script.source or not any(_TRAINS.search(one.source) for one in connected(script, project)):
        return
    shortest = _kept(script)
    yield from _highest(script)
    for statement in _statements(script.tree):
        speeds = [one for one in ast.walk(statement) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)]
        for node in speeds if _SPEED.search(whole := ast.unparse(statement)) and not _SAYS_SO.search(whole) else ():
            divided = ast.unparse(node.right)
            least = divided in shortest or _LEAST.fullmatch(divided)
            if least and _COUNTED.search(ast.unparse(node.left)):
                yield _finding(script, node, ast.unparse(node), shortest.get(divided))
                return


_RATES = re.compile(
    r"(?:^|_)(?:rates?|tps|tok\w*_s|speeds?|throughputs?|tok\w*_per_s\w*|samples_per_s\w*)(?:$|_)", re.IGNORECASE
)


def _highest(script: Script) -> Iterator[Finding]:
    """`max(rates)`, of a list that each step's speed goes into, shown as the speed."""
    filled = {
        ast.unparse(node.func.value)
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append"
        if node.args and (_BY_TIME.search(ast.unparse(node.args[0])) or _RATES.search(ast.unparse(node.args[0])))
    }
    for statement in _statements(script.tree):
        whole = ast.unparse(statement)
        if not _SPEED.search(re.sub(r"\bmax\([\w.]+\)", "", whole)) or _SAYS_SO.search(whole):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "max" and len(node.args) == 1:
                name = ast.unparse(node.args[0])
                if name in filled and _RATES.search(name.rpartition(".")[2]):
                    yield _finding(script, node, ast.unparse(node), None)
                    return


_BY_TIME = re.compile(r"/ \(?[\w.]*\b(time|perf_counter|dt|took|elapsed|seconds|duration)\b")


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """The smallest ones that hold an expression: assignments, calls, what is returned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return):
            yield node


def _kept(script: Script) -> dict[str, Place]:
    """Names that keep the least time, and where: `best = min(best, now - start)`, and `if dt < best: best = dt`."""
    found: dict[str, Place] = {}
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
            name, call = ast.unparse(node.targets[0]), node.value
            parts = [ast.unparse(one) for one in call.args]
            timed = any(_CLOCK.search(one) for one in parts if one != name)
            if ast.unparse(call.func) == "min" and name in parts and timed:
                found[name] = place_of(script, node)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.Lt):
            less, more = ast.unparse(node.test.left), ast.unparse(node.test.comparators[0])
            given = [ast.unparse(one) for one in node.body]
            if f"{more} = {less}" in given and _CLOCK.search(less):
                found[more] = place_of(script, node)
    return found


def _finding(script: Script, node: ast.expr, text: str, kept: Place | None) -> Finding:
    return Finding(
        f"`{text}` is the speed of the fastest step: what other steps wait for, data, checkpoints and other lengths, is not"
        " in it, and no run goes at that speed.",
        place=place_of(script, node),
        evidence=Evidence(Level.TEXT, {"speed": text}),
        stake=Stake(AtStake.FIGURES),
        remedy=Remedy(
            Risk.SAFE,
            "Divide what was counted since the last log by the time since then; name the fastest step's speed as such.",
            effort=Effort.MINUTES,
            measure="dynotune profile -- python train.py",
        ),
        also=() if kept is None else (kept,),
    )


_CALLBACK = """import time

from transformers import TrainerCallback


class Speed(TrainerCallback):
    best = float("inf")

    def on_step_begin(self, args, state, control, **kwargs):
        self.start = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self.{}

    def on_log(self, args, state, control, logs=None, **kwargs):
        logs["tokens_per_second"] = self.tokens / self.{}
"""
_LOOP = """import time

times = []
for batch in loader:
    start = time.time()
    model(**batch).loss.backward()
    optimizer.step()
    times.append(time.time() - start)
print(f"{tokens / min(times):.0f} tokens/s")
"""
RULE = Rule(
    code="MSR007",
    name="fastest-step",
    summary="A throughput is that of the fastest step.",
    group=Group.MEASURE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="The least time that any step took is kept, and the tokens of a step are divided by it.",
        why="It leaves out what makes runs slow: waiting for data, longer rows, checkpoints, a neighbour on the network."
        " Hours that are reckoned from it are too few, and two changes are compared by their luckiest step.",
        detected="E0: the least of a step's times (`best = min(best, now - start)`, `if dt < best`, `min(times)`) is what"
        " something counted is divided by, or the most of its speeds (`max(rates)`) is what is shown,"
        " in a statement that names a speed and does not call it a peak, in a program that"
        " trains.",
        proven="The tokens of a run over its time.",
        deliberate=("A microbenchmark, whose least time is the one without interruptions; then its name says so.",),
        sources=("Python's `timeit`: the least time bounds what the machine can do, not what it does",),
    ),
    bad=Example(
        {"train.py": _CALLBACK.format("best = min(self.best, time.perf_counter() - self.start)", "best")},
        says="fastest step",
    ),
    good=Example({"train.py": _CALLBACK.format("took += time.perf_counter() - self.start", "took")}),
    also_bad=(Example({"train.py": _LOOP}, says="fastest step"),),
)
