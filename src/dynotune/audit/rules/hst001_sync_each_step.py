"""HST001: the host waits for the device at every step to look at a number."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, on_device, text_at
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_READS = frozenset({"item", "tolist", "cpu", "numpy"})
_OF_THE_MODEL = re.compile(r"loss|logit|norm|acc(uracy)?\b|pred|reward|output|logp|entropy|margin", re.IGNORECASE)
_HOST = re.compile(r"\bnp\.|numpy|\blen\(|_list\b|\bhost_|_cpu\b")


def check(script: Script, project: Project) -> Iterator[Said]:
    if not on_device(script):
        return
    for loop in loops(script):
        waits = [call for call in loop.calls if call.each_step and _waits(script, call)]
        # `loss.detach().cpu().item()` is one wait: only what is not part of another call counts.
        waits = [call for call in waits if not any(one is not call and _inside(call, one) for one in waits)]
        if not waits:
            continue
        first, *more = waits
        named = ", ".join(f"`{_short(text_at(script, call.place))}`" for call in waits[:3])
        count = f"{len(waits)} times" if len(waits) > 1 else "once"
        yield Finding(
            f"The host waits for the device {count} a micro-batch, under no condition: {named}.",
            place=first.place,
            evidence=Evidence(Level.TEXT, {"reads": [_short(text_at(script, call.place)) for call in waits]}),
            stake=Stake(
                AtStake.TIME, 0.0, 0.05, "the gap until the next step's first kernel; hidden where steps are long"
            ),
            remedy=Remedy(
                Risk.SAFE,
                "Add up on the device (`total += loss.detach()`) and read the sum every N steps.",
                effort=Effort.MINUTES,
                measure="dynotune profile -- python train.py",
            ),
            also=tuple(call.place for call in more),
        )


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
    start, end = (call.place.line, call.place.column), (call.place.end_line, call.place.end_column)
    return (one.place.line, one.place.column) <= start and end <= (one.place.end_line, one.place.end_column)


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
        detected="E0: such a call on a loss, logits, a norm or a metric in a loop with a backward pass, under no"
        " `if`, directly"
        " or one function down.",
        proven="`dynotune profile -- python train.py` shows the device's idle time and what the host waits in.",
        deliberate=(
            "A step is long enough that the gap cannot be seen.",
            "The number decides what is done next (a stop at NaN, a line search).",
        ),
        sources=("PyTorch's performance tuning guide: avoid unnecessary CPU-GPU synchronization",),
    ),
    bad=Example({"train.py": f"{_LOOP}    running += loss.item()\n"}, says="loss.item()"),
    good=Example(
        {"train.py": f"{_LOOP}    running += loss.detach()\n    if step % 50 == 0:\n        print(running.item())\n"}
    ),
)
