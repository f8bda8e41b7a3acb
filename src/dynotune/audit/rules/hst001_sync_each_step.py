"""HST001: the host waits for the device at every step to look at a number."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, on_device, per_step, place_of, text_at
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_READS = frozenset({"item", "tolist", "cpu", "numpy"})
_TESTS = ("torch.isnan", "torch.isinf", "torch.isfinite", "torch.any", "torch.all", "torch.allclose", "torch.equal")
_OF_THE_MODEL = re.compile(r"loss|logit|norm|acc(uracy)?\b|pred|reward|output|logp|entropy|margin", re.IGNORECASE)
_HOST = re.compile(r"\bnp\.|numpy|\blen\(|_list\b|\bhost_|_cpu\b")


def check(script: Script, project: Project) -> Iterator[Said]:
    for calls in _each_step(script):
        waits = [call for call in calls if call.each_step and _waits(script, call)]
        # `loss.detach().cpu().item()` is one wait: only what is not part of another call counts.
        waits = [call for call in waits if not any(one is not call and _inside(call, one) for one in waits)]
        if waits:
            yield _read(script, waits)
        yield from _branches(script, calls)


def _each_step(script: Script) -> Iterator[Sequence[Call]]:
    """Calls of each loop that trains on a device, and of each method of a `Trainer`'s subclass that runs at every step."""
    if on_device(script):
        yield from (loop.calls for loop in loops(script))
    trainers = {
        node.name
        for node in ast.walk(script.tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Trainer") for base in node.bases)
    }
    found: dict[Place | None, list[Call]] = {}
    for call in per_step(script, "compute_loss", "training_step", "get_batch_loss_metrics"):
        if any(around.kind == "class" and around.name in trainers for around in call.around):
            found.setdefault(call.loop, []).append(call)
    yield from found.values()


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
            "Add up on the device (`total += loss.detach()`) and read the sum every N steps.",
            effort=Effort.MINUTES,
            measure="dynotune profile -- python train.py",
        ),
        also=tuple(call.place for call in more),
    )


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
            yield Finding(
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
        return bool(_OF_THE_MODEL.search(call.on)) and not _HOST.search(call.on)
    if call.name in ("float", "print") and not call.on:
        if re.search(r"\bloss\s*=.*(\.item\(|float\(|\.tolist\()", script.source):
            return False  # it may be a number already
        text = text_at(script, call.place)
        inner = text[len(call.name) + 1 : -1]
        if call.name == "float":
            return bool(re.fullmatch(r"(\w+\.)*loss(\.detach\(\))?", inner))
        return bool(re.search(r"(?<![\w.'\"])(\w+\.)*loss\b(?![\w.(\[=]|['\"])", _expressions(inner)))
    return False


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
        " function down.",
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
