"""MSR004: a speed whose clock starts before the first step, with compilation and warm-up in it."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops, on_device
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_CLOCK = (
    r"(?:(?:time|timeit)\.)?(?:(?:time|perf_counter|monotonic)(?:_ns)?|default_timer)\(\)|(?:datetime\.){1,2}now\(\)"
)
_CLOCK = f"(?:{_CLOCK})"
_START = re.compile(rf"^\s*(?P<name>[\w.]+)(?:\s*,\s*\w+)*\s*=\s*{_CLOCK}")


def _start_of(line: str) -> str:
    """The name that the time goes into, also as one of several (`step, start = 0, time.time()`); empty: none."""
    found = _START.match(line)
    if found is not None:
        return found["name"]
    try:
        body = ast.parse(line.strip()).body if re.search(_CLOCK, line) and "=" in line else []
    except (SyntaxError, ValueError):
        return ""
    taken = (ast.unparse(target) for target, value in _pairs(body) if re.fullmatch(_CLOCK, ast.unparse(value)))
    return next(taken, "")


def _pairs(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each name with what it gets."""
    for node in body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from zip(target.elts, node.value.elts, strict=False)
                else:
                    yield target, node.value


_WARM = re.compile(
    r"warm_?up_?(steps|iters|batches|done)?\b(?!_ratio)[^=\n]{0,80}[:<>=]|skip_first(?!_batches)|first_step|burn_in",
    re.IGNORECASE,
)

_BY = r"/\s{0,8}(?:max\(\s{0,8})?"
_DIVIDED = re.compile(_BY + r"(\w+)\b(?!\s{0,8}(?:[*/]|>))")
_COUNTED = re.compile(
    r"tok|step|sample|row|example|seen|batch|iter|epoch|count|done|total|num|len\(|seq|(?<![a-z])(n|i|it|its)(?![a-z])",
    re.IGNORECASE,
)
_TIME = re.compile(r"(?<![a-z])(time|times|ms|secs?|seconds|elapsed|took|wait\w*|dur\w*)(?![a-z])", re.IGNORECASE)
_QUOTED = re.compile(r"(?<!\[)\"[^\"]*\"|(?<!\[)'[^']*'")


def check(script: Script, project: Project) -> Iterator[Said]:
    yield from _by_a_callback(script)
    yield from _around_a_trainer(script)
    if not on_device(script):
        return
    lines = [line.partition("  #")[0] for line in script.source.split("\n")]
    every = list(loops(script))
    epochs = _of_several_turns(script)
    functions = [node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef)]
    for loop in every:
        begin, end = loop.place.line, loop.place.end_line
        for number in range(min(max(begin - 40, 1), _head(functions, begin)), begin):
            start = _start_of(lines[number - 1])
            if not start:
                continue
            if any(number - 15 < one.place.end_line < number for one in every):
                continue  # steps that nobody times come first
            name = re.escape(start)
            first, last = _outermost(script, begin, end, number)
            inside = "\n".join(lines[first - 1 : last])
            if re.search(
                rf"(?:^|[:;])[^\S\n]*(?:[\w.]{{1,60}}, ?){{0,6}}{name}\b[^=\n]{{0,120}}=[^=]", inside, re.MULTILINE
            ) or _is_warm(lines[begin - 40 if begin > 40 else 0 : end]):
                continue  # taken anew on the way
            read = _speed(lines, begin, min(end + 25, len(lines)), name)
            if read > end and any(number in lines_ for lines_ in epochs):
                continue  # one epoch's figure among others, of which the first alone is too low
            if read:
                yield _finding(script, Place(script.file, read, 1, read, len(lines[read - 1]) + 1), number)
                return


def _outermost(script: Script, begin: int, end: int, start: int) -> tuple[int, int]:
    """The lines of the outermost loop behind the clock's start that holds these: the one over micro-batches stands in one
    over steps."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.For | ast.While) and start < node.lineno <= begin and end <= (node.end_lineno or 0):
            begin, end = min(begin, node.lineno), max(end, node.end_lineno or 0)
    return begin, end


def _head(functions: Sequence[ast.FunctionDef], line: int) -> int:
    """Where the function begins that a line stands in; the line itself outside of any."""
    return max((one.lineno for one in functions if one.lineno <= line <= (one.end_lineno or 0)), default=line)


_BEGUN = re.compile(rf"^\s*(self\.\w+)\s*=\s*{_CLOCK}", re.MULTILINE)


def _by_a_callback(script: Script) -> Iterator[Said]:
    """A trainer's callback that takes the clock once, where training begins, and makes a speed of it at each log."""
    lines = script.source.split("\n")
    for node in ast.walk(script.tree) if "on_train_begin" in script.source else ():
        if not isinstance(node, ast.ClassDef):
            continue
        methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
        begin = methods.get("on_train_begin")
        if begin is None or _is_warm(lines[node.lineno - 1 : node.end_lineno]):
            continue
        held = "\n".join(lines[begin.lineno - 1 : begin.end_lineno])
        for found in _BEGUN.finditer(held):
            taken = rf"^\s*{re.escape(found[1])}\s*=[^=]"
            whole = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            if len([one for one in re.findall(taken + ".*", whole, re.MULTILINE) if "None" not in one]) != 1:
                continue  # taken anew
            for name in ("on_log", "on_step_end"):
                method = methods.get(name)
                read = _speed(lines, method.lineno, method.end_lineno or 0, re.escape(found[1])) if method else 0
                if read:
                    start = begin.lineno + held.count("\n", 0, found.start(1))
                    yield _finding(script, Place(script.file, read, 1, read, len(lines[read - 1]) + 1), start)
                    return


def _of_several_turns(script: Script) -> list[range]:
    """Lines of the bodies of loops."""
    return [
        range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(script.tree)
        if isinstance(node, ast.While) or (isinstance(node, ast.For) and ast.unparse(node.iter) != "range(1)")
    ]


_RATE = re.compile(r"sched|num_warmup|(?<![a-z])lrs?(?![a-z])|learning_rate|cosine", re.IGNORECASE)


def _is_warm(lines: list[str]) -> bool:
    """The first steps are told apart: by a line that, with the two below, is not about the learning rate's warm-up."""
    told = [
        line
        for at, line in enumerate(lines)
        if _WARM.search(line) and not any(_RATE.search(one) for one in lines[at : at + 3])
    ]
    return any(re.search(r"\bif\b|\brange\(|\bcontinue\b", line) for line in told)


def _speed(lines: list[str], begin: int, end: int, name: str) -> int:
    """The line that divides something by the time since then; 0 if there is none."""
    since = rf"\(?\s{{0,8}}{_CLOCK}\s{{0,8}}-\s{{0,8}}{name}\s{{0,8}}\)?"  # bounded: blanks without end are quadratic
    divided = re.compile(rf"{_BY}{since}")
    taken = re.compile(rf"\s*(\w+)\s{{0,8}}=\s{{0,8}}{since}")
    named: set[str] = set()
    for number in range(begin, end + 1):
        text = lines[number - 1]
        if (found := divided.search(text)) and _counts(lines, number, found.start()):
            return number
        if found := taken.match(text):
            named.add(found[1])
        if re.search(r"/\s{0,8}(60|3600)\b", text):
            continue
        for found in _DIVIDED.finditer(text) if named else ():
            if found[1] in named and _counts(lines, number, found.start()):
                return number
    return 0


def _counts(lines: list[str], number: int, column: int) -> bool:
    """What is divided there counts something; a share of the time is no speed."""
    text = lines[number - 1][:column]
    if not text.strip() and number > 1:
        text = lines[number - 2]
    over = re.split(r"[,={:]", _QUOTED.sub("", text[-300:]))[-1]
    figures = re.fullmatch(r"[\s\d_.*)]*\d[\s\d_.*)]*", over.rpartition("(")[2]) and _A_SECOND.search(lines[number - 1])
    return bool(figures or _COUNTED.search(over)) and not _TIME.search(over)


_A_SECOND = re.compile(r"/ ?s(?:ec(?:ond)?)?\b|per[_ ]s(?:ec(?:ond)?)?\b|\w_s\b|throughput|speed", re.IGNORECASE)


def _around_a_trainer(script: Script) -> Iterator[Said]:
    """The clock is taken right before `trainer.train()`, and a speed is made of it right after."""
    lines = [line.partition("  #")[0] for line in script.source.split("\n")]
    for call in script.calls:
        if not call.name.endswith(".train") or "rainer" not in f"{call.on}{call.name}" or call.name.endswith("Trainer"):
            continue
        line = call.place.line
        for number in range(max(line - 4, 1), line):
            start = _start_of(lines[number - 1])
            if not start or re.search(r"warm", "\n".join(lines[max(0, number - 12) : line]), re.IGNORECASE):
                continue
            read = _speed(lines, line, min(line + 12, len(lines)), re.escape(start))
            if read:
                yield _finding(script, Place(script.file, read, 1, read, len(lines[read - 1]) + 1), number, _IN_A_CALL)
                return


_IN_A_LOOP = "Start the clock and the counts anew after the first 10 steps, and at every log."
_IN_A_CALL = "Start the clock in a `TrainerCallback` (`on_step_end`, at the tenth step), and count from there."


def _finding(script: Script, place: Place, start: int, remedy: str = _IN_A_LOOP) -> Finding:
    compiled = "torch.compile(" in script.source
    return Finding(
        f"The speed is an average since {'its clock was started' if script.file.endswith('.ipynb') else f'line {start}'},"
        f" before the first step: {'compilation, ' if compiled else ''}memory allocation and warm-up are in it.",
        place=place,
        evidence=Evidence(Level.TEXT, {"clock starts at line": start} | ({"compiled": True} if compiled else {})),
        stake=Stake(AtStake.FIGURES),
        remedy=Remedy(
            Risk.SAFE,
            remedy,
            effort=Effort.MINUTES,
            measure="dynotune profile -- python train.py",
        ),
        also=(Place(script.file, start),),
    )


_LOOP = """import time
import torch

model = torch.compile(model.cuda())
start, tokens = time.time(), 0
for step, batch in enumerate(train_loader):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    tokens += int(batch["attention_mask"].sum())
    {}
    if step % 50 == 0:
        print("tokens per second", tokens / (time.time() - start))
"""
RULE = Rule(
    code="MSR004",
    name="warm-up-counted",
    summary="A speed counts compilation and warm-up.",
    group=Group.MEASURE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="The clock starts before the loop and is never started anew, and a speed is made of it.",
        why="The first steps compile, allocate and tune: seconds to minutes. A short run reads slower than it"
        " is, a change that"
        " compiles longer reads as a slow-down (a fused loss was blamed for half of the speed that way).",
        detected="E0: a clock is taken before a training loop, nothing in the loop takes it again or tells"
        " warm-up apart, and"
        " something that is counted is divided by the time since.",
        proven="Print the speed of every 50 steps: it rises.",
        deliberate=("Time to result is what counts, start included.",),
        sources=("alpa issue 823, anemoi-core issue 1254, transformers issue 32619: what users ask to have left out",),
    ),
    bad=Example({"train.py": _LOOP.format("pass")}, says="before the first step"),
    good=Example({"train.py": _LOOP.format("if step == 10:\n        start, tokens = time.time(), 0")}),
)
