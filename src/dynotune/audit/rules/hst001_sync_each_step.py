"""HST001: the host waits for the device at every step to look at a number."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from dynotune.audit.facts.moved import root, was_moved
from dynotune.audit.facts.of_the_model import comes_from, of_the_model
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import Loop, helpers, loops, on_device, per_step, place_of, text_at
from dynotune.audit.facts.together import together
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.fed_each_step import read_where_it_is_fed

_READS = frozenset({"item", "tolist", "cpu", "numpy"})
_TESTS = ("torch.isnan", "torch.isinf", "torch.isfinite", "torch.any", "torch.all", "torch.allclose", "torch.equal")
_OF_THE_MODEL = re.compile(r"loss|logit|norm|acc(uracy)?\b|pred|reward|output|logp|entropy|margin", re.IGNORECASE)
_HOST = re.compile(r"\bnp\.|numpy|\blen\(|_list\b|\bhost_|_cpu\b")


def check(script: Script, project: Project) -> Iterator[Said]:
    yield from _of_lightning(script)
    device = on_device(script) or any(on_device(one) for one in together(script, project))
    for calls in _each_step(script, device):
        yield from _reads(script, [call for call in calls if call.each_step])
        yield from _branches(script, calls)
    if device:
        bodies, numbers = _bodies(script), _numbers(script)
        for loop in loops(script):
            yield from _compared(script, loop, bodies, numbers)
        for other, calls in helpers(script, project):
            # What is printed there may be a number by then; what is read there is none.
            yield from _reads(other, [call for call in calls if call.name.rpartition(".")[2] in _READS])
        for other, calls in read_where_it_is_fed(script, project):
            waits = [call for call in calls if not any(one is not call and _inside(call, one) for one in calls)]
            yield _read(other, waits)


_TRIALS = frozenset({"fast_dev_run", "limit_train_batches", "overfit_batches"})
"""Arguments of a run that only tries something."""


def _of_lightning(script: Script) -> Iterator[Finding]:
    """Lightning's trainer hands what is logged to its logger at every step, as numbers."""
    for call in script.calls_of("Trainer"):
        every = call.arguments.get("log_every_n_steps")
        if "lightning" not in call.name or every is None or every.value != 1 or every.others:
            continue
        logger, steps = call.arguments.get("logger"), call.arguments.get("max_steps")
        short = steps is not None and isinstance(steps.value, int) and 0 < steps.value < 500
        if (logger is not None and logger.value is False) or _TRIALS & set(call.arguments) or short:
            continue
        if any(place.key.startswith("-") for place in every.via) or _is_on_the_host(call):
            continue
        yield Finding(
            "`log_every_n_steps=1` hands what is logged to the logger at every step, as numbers: the host waits for the"
            " device each time, before it launches the next step.",
            place=every.place if every.place.file == script.file else call.place,
            evidence=Evidence(Level.TEXT, {"log_every_n_steps": 1}),
            stake=Stake(
                AtStake.TIME, 0.0, 0.05, "the gap until the next step's first kernel; hidden where steps are long"
            ),
            remedy=Remedy(
                Risk.SAFE,
                "Leave it at 50, its default, or set 10.",
                effort=Effort.LINE,
                measure="dynotune profile -- python train.py",
            ),
            also=(call.place,),
        )


def _is_on_the_host(call: Call) -> bool:
    given = call.arguments.get("accelerator")
    return given is not None and given.value == "cpu"


def _reads(script: Script, calls: Sequence[Call]) -> Iterator[Finding]:
    waits = [call for call in calls if _waits(script, call)]
    # `loss.detach().cpu().item()` is one wait: only what is not part of another call counts.
    waits = [call for call in waits if not any(one is not call and _inside(call, one) for one in waits)]
    if waits:
        yield _read(script, waits)


def _each_step(script: Script, device: bool) -> Iterator[Sequence[Call]]:
    """Calls of each loop that trains on a device, and of each method of a trainer or module that runs at every step."""
    if device:
        yield from (loop.calls for loop in loops(script))
        yield from _around_micro_batches(script)
    trainers = {
        node.name
        for node in ast.walk(script.tree)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith(("Trainer", "Module")) for base in node.bases)
    }
    found: dict[Place | None, list[Call]] = {}
    for call in per_step(script, "compute_loss", "training_step", "get_batch_loss_metrics"):
        if any(around.kind == "class" and around.name in trainers for around in call.around):
            found.setdefault(call.loop, []).append(call)
    yield from found.values()


def _around_micro_batches(script: Script) -> Iterator[Sequence[Call]]:
    """Calls of loops that take a step at each turn, behind a loop over its micro-batches."""
    inner = [loop.place for loop in loops(script)]
    turns: dict[Place, list[Call]] = {}
    for call in script.calls:
        if call.in_training_loop and call.loop is not None and call.loop not in inner:
            turns.setdefault(call.loop, []).append(call)
    for place, calls in turns.items():
        holds = any(place.line < one.line and one.end_line <= place.end_line for one in inner)
        if holds and any(step.each_step for step in Loop(place, calls, "").optimizer_steps):
            yield calls


def _read(script: Script, waits: Sequence[Call]) -> Finding:
    first, *more = waits
    named = ", ".join(f"`{_short(text_at(script, call.place))}`" for call in waits[:3])
    count = f"{len(waits)} times" if len(waits) > 1 else "once"
    return Finding(
        f"The host waits for the device {count} a micro-batch, under no condition: {named}.",
        place=first.place,
        evidence=Evidence(Level.TEXT, {"reads": [_short(text_at(script, call.place)) for call in waits]}),
        stake=Stake(AtStake.TIME, 0.0, 0.05, "the gap until the next step's first kernel; hidden where steps are long"),
        remedy=Remedy(
            Risk.SAFE,
            _instead(script, first),
            effort=Effort.MINUTES,
            measure="dynotune profile -- python train.py",
        ),
        also=tuple(call.place for call in more),
    )


def _instead(script: Script, first: Call) -> str:
    """In the words of what runs the step: Lightning, a trainer, or a loop."""
    within = next((around.name for around in reversed(first.around) if around.kind == "function"), "")
    if within == "training_step" and "ightning" in script.source:
        return "Hand the tensor on (`self.log(name, value.detach())`): Lightning reads it when it writes a log."
    if within in ("compute_loss", "get_batch_loss_metrics", "training_step"):
        return (
            "Add up on the device (`self.total += value.detach()`) and read the sum in `log`, which runs every"
            " `logging_steps`."
        )
    return "Add up on the device (`total += loss.detach()`) and read the sum every N steps."


def _branches(script: Script, calls: Sequence[Call]) -> Iterator[Finding]:
    """`if torch.isnan(loss):` at every step. Python needs the answer before it goes on."""
    tested = [
        call for call in calls if call.each_step and call.name in _TESTS and _OF_THE_MODEL.search(_inner(script, call))
    ]
    if not tested:
        return
    branches = [node.test for node in ast.walk(script.tree) if isinstance(node, ast.If | ast.While | ast.Assert)]
    # What stands after an `and` or `or` may not be asked.
    tests = [place_of(script, test.values[0] if isinstance(test, ast.BoolOp) else test) for test in branches]
    for call in tested:
        test = next((test for test in tests if _within(call.place, test)), None)
        if test is not None:
            yield _branch(script, test)


def _bodies(script: Script) -> dict[int, Sequence[ast.stmt]]:
    """Of loops, by the line of their head; of several in a line the first one's."""
    found: dict[int, Sequence[ast.stmt]] = {}
    for node in ast.walk(script.tree):
        if isinstance(node, ast.For | ast.While | ast.AsyncFor):
            found.setdefault(node.lineno, node.body)
    return found


def _numbers(script: Script) -> set[str]:
    """What becomes a number of Python somewhere."""
    return {found[1] for found in re.finditer(r"(?<![\w.])([\w.]+)\s*=.{0,300}(\.item\(|float\()", script.source)}


def _compared(
    script: Script, loop: Loop, bodies: Mapping[int, Sequence[ast.stmt]], numbers: Collection[str]
) -> Iterator[Finding]:
    """`if loss < best:` and `if loss.isnan():`, where the loss is a tensor still. bodies: of loops, by their lines."""
    losses = {_propagated(script, call) for call in loop.has("backward", "manual_backward")} - {""}
    losses = {one for one in losses if not any(name == one or name.endswith(f".{one}") for name in numbers)}
    for test in _tests(bodies.get(loop.place.line, ())):
        first = test.values[0] if isinstance(test, ast.BoolOp) else test
        first = first.operand if isinstance(first, ast.UnaryOp) else first
        sides = [first.left, *first.comparators] if isinstance(first, ast.Compare) else []
        compared = any(ast.unparse(side) in losses for side in sides) and not isinstance(first, ast.Name)
        compared = compared and not any(isinstance(one, ast.Is | ast.IsNot) for one in getattr(first, "ops", ()))
        asked = re.fullmatch(r"([\w.]+)\.is(nan|inf|finite)\(\)(\.(any|all)\(\))?", ast.unparse(first))
        if compared or (asked and asked[1] in losses) or _counts(script, loop, first):
            yield _branch(script, place_of(script, first))


def _propagated(script: Script, call: Call) -> str:
    """The loss by its name: of `loss.backward()`, `scaler.scale(loss).backward()`, `engine.backward(loss)`."""
    first = re.match(r"[\w.]+\(\s*([\w.]+)\s*[,)]", text_at(script, call.place))
    scaled = re.search(r"\.scale\(\s*([\w.]+)\s*\)$", call.on)
    for name in (call.on, scaled[1] if scaled is not None else "", first[1] if first is not None else ""):
        if re.fullmatch(r"(\w+\.)*\w*loss\w*", name):
            return name
    return ""


_COUNTS = frozenset({"sum", "any", "all", "max", "min", "mean", "count_nonzero"})


def _counts(script: Script, loop: Loop, test: ast.expr) -> bool:
    """`if (batch["labels"] != -100).sum() == 0:` of a batch that is on the device."""
    side = test.left if isinstance(test, ast.Compare) else test
    if isinstance(side, ast.Call) and isinstance(side.func, ast.Attribute) and side.func.attr == "item":
        return False  # a read, which is said as one
    if not isinstance(side, ast.Call) or not isinstance(side.func, ast.Attribute) or side.func.attr not in _COUNTS:
        return False
    return was_moved(script, root(side.func.value), loop.place, test.lineno)


def _tests(body: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    """Of branches that stand under no other."""
    for statement in body:
        if isinstance(statement, ast.If | ast.Assert):
            yield statement.test
        elif isinstance(statement, ast.With | ast.For | ast.Try | ast.While):
            yield from _tests(statement.body)


def _branch(script: Script, test: Place) -> Finding:
    return Finding(
        f"Python branches on `{_short(text_at(script, test))}` at every micro-batch: the host waits until the device"
        " has the answer.",
        place=test,
        evidence=Evidence(Level.TEXT, {"test": _short(text_at(script, test))}),
        stake=Stake(
            AtStake.TIME,
            0.0,
            0.05,
            "the gap until the next step's first kernel; nothing where another read waits already",
        ),
        remedy=Remedy(
            Risk.SAFE,
            "Keep the flag on the device (`bad |= ~torch.isfinite(loss)`) and look at it every N steps.",
            effort=Effort.MINUTES,
            breaks="A stop comes up to N steps later.",
            measure="dynotune profile -- python train.py",
        ),
    )


def _inner(script: Script, call: Call) -> str:
    return text_at(script, call.place).partition("(")[2]


def _waits(script: Script, call: Call) -> bool:
    last = call.name.rpartition(".")[2]
    if last in _READS and call.on:
        of_device = bool(_OF_THE_MODEL.search(call.on)) or _is_of_device(script, call.on) or _was_moved(script, call)
        of_device = of_device or _comes_from_the_model(script, call)
        return of_device and not _HOST.search(call.on)
    if (call.name in ("float", "print") and not call.on) or _shows(call, last):
        if re.search(r"\bloss\s*=.*(\.item\(|float\(|\.tolist\()", script.source):
            return False  # it may be a number already
        text = text_at(script, call.place)
        inner = text.partition("(")[2][:-1]
        if call.name == "float":
            return bool(re.fullmatch(r"(\w+\.)*loss(\.detach\(\))?", inner))
        return bool(re.search(r"(?<![\w.'\"])(\w+\.)*loss\b(?![\w.(\[=]|['\"])", _expressions(inner)))
    return False


def _is_of_device(script: Script, on: str) -> bool:
    """By what its name is given: the norm of the gradients, or what is propagated back."""
    name = re.match(r"\w+", on)
    if name is None:
        return False
    word = re.escape(name[0])
    norm = rf"\b{word}\s*=\s*[\w.]*(?:clip_grad_norm_|get_total_norm|cross_entropy|gather|gather_for_metrics)\("
    of_loss = rf"\b{word}\s*=\s*(?:\w+\.)*loss(?:\.(?:detach|clone|mean|float)\(\))*\s*(?:[#;]|$)"
    if re.search(of_loss, script.source, re.MULTILINE):
        return True
    if re.search(rf"\ball_reduce\(\s*{word}\b", script.source) and "gloo" not in script.source:
        return True
    return bool(re.search(rf"{norm}|\b{word}\.backward\(|\.backward\({word}[,)]", script.source))


def _comes_from_the_model(script: Script, call: Call) -> bool:
    """By what its names are assigned from in the loop or the method: `(chosen - rejected).mean()` of two passes."""
    if call.loop is None or ".cpu()" in call.on:
        return False
    try:
        read = ast.parse(call.on.strip(), mode="eval").body
    except SyntaxError:
        return False
    return comes_from(read, of_the_model(script, call.loop))


def _was_moved(script: Script, call: Call) -> bool:
    """It reads a batch that the same loop has put on the device before."""
    if call.loop is None:
        return False
    try:
        name = root(ast.parse(call.on.strip(), mode="eval").body)
    except SyntaxError:
        return False
    return bool(name) and was_moved(script, name, call.loop, call.place.line)


_SHOWN_BY = re.compile(
    r"wandb|\brun\b|accelerat|\bacc\b|writer|tracker|mlflow|\bw?bar\b|pbar|tqdm|progress|logg", re.IGNORECASE
)


def _shows(call: Call, last: str) -> bool:
    """What writes a tensor as text or hands it to a tracker, which makes a number of it."""
    if last in ("set_postfix", "set_description", "set_postfix_str"):
        return True
    if last in ("add_scalar", "add_scalars"):
        return True
    shows = last in ("log", "log_metric", "log_metrics", "add_scalar", "info", "write")
    return shows and bool(_SHOWN_BY.search(call.on or call.name.rpartition(".")[0]))


def _expressions(text: str) -> str:
    """What is evaluated in the arguments of `print`: outside of texts, and in the braces of f-texts."""
    braces = " ".join(re.findall(r"\{([^{}:!]+)", text))
    return re.sub(r"[rbfRBF]{0,2}(\"[^\"]*\"|'[^']*')", " ", text) + " " + braces


def _inside(call: Call, one: Call) -> bool:
    return _within(call.place, one.place)


def _within(place: Place, other: Place) -> bool:
    start, end = (place.line, place.column), (place.end_line, place.end_column)
    return (other.line, other.column) <= start and end <= (other.end_line, other.end_column)


def _short(text: str) -> str:
    whole = " ".join(text.split())
    return whole if len(whole) <= 50 else whole[:47] + "..."


_LOOP = """import torch

model.cuda()
running = 0.0
for step, batch in enumerate(train_loader):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
RULE = Rule(
    code="HST001",
    name="sync-each-step",
    summary="A training loop reads a number from the device at every step.",
    group=Group.PERFORMANCE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="`.item()`, `.cpu()`, `.tolist()`, `float(loss)` and printing a tensor wait until the device has"
        " finished all"
        " that was asked of it, and only then is the next step asked for.",
        why="The device idles while Python prepares the next step. With steps of a few milliseconds that is much,"
        " with steps"
        " of a second nothing that can be measured.",
        detected="E0: such a call on a loss, logits, a norm or a metric, or an `if` on `torch.isnan` and the like of one, in"
        " a loop with a backward pass or in a `Trainer`'s `compute_loss` or `training_step`, under no `if`, directly or one"
        " function down, in other files too; a tensor that is compared, or handed to what shows or tracks it.",
        proven="`dynotune profile -- python train.py` shows the device's idle time and what the host waits in.",
        deliberate=(
            "A step is long enough that the gap cannot be seen.",
            "The number decides what is done next (a line search, a stop at the very step that gave NaN).",
        ),
        sources=("PyTorch's performance tuning guide: avoid unnecessary CPU-GPU synchronization",),
    ),
    bad=Example({"train.py": f"{_LOOP}    running += loss.item()\n"}, says="loss.item()"),
    good=Example(
        {"train.py": f"{_LOOP}    running += loss.detach()\n    if step % 50 == 0:\n        print(running.item())\n"}
    ),
)
