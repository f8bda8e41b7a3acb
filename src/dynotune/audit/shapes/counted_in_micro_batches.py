"""A schedule is made for all micro-batches of a run, and advanced at updates alone."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.ranks import Values, last_part, values_of
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import accumulation, is_scheduler, loops, place_of
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_TOTALS = ("num_training_steps", "total_steps", "T_max", "total_iters", "max_steps")
_MADE = re.compile(r"get_(\w+_)?(schedule|scheduler)(_\w+)?$|(CosineAnnealing|OneCycle|Linear|Polynomial)LR$")
_LENGTH = re.compile(r"len\([\w.\[\]'\"]*(loader|_dl|\bdl|batches)\w*\)", re.IGNORECASE)
_BY_UPDATES = re.compile(r"/|accum|updates?\b|grad_acc|\bgas\b|micro", re.IGNORECASE)
_OF_OTHERS = re.compile(r"accelerat|deepspeed|LightningModule|Fabric")


def counted_in_micro_batches(script: Script) -> Iterator[Said]:
    """`num_training_steps=epochs * len(loader)` beside `if (step + 1) % accum == 0: scheduler.step()`."""
    if script.calls_of("Accelerator"):
        yield from _by_accelerate(script)
    if "%" not in script.source or _OF_OTHERS.search(code(script)):
        return
    values = None
    for loop in loops(script):
        every, updates = accumulation(script, loop)
        rates = [call for call in loop.has("step") if is_scheduler(call) and not call.each_step]
        rates = [call for call in rates if not _repeated(script, call)]
        beside = [one for one in rates if any(one.around == update.around for update in updates)]
        if not every or not beside or every == "1":
            continue
        values = values or values_of(script)
        name = beside[0].on.rpartition(".")[2]
        made, total = counted(name, values)
        if made is None:
            continue
        yield _finding(script, made, name, total, every, beside[0])
        return


def _by_accelerate(script: Script) -> Iterator[Said]:
    """A prepared schedule that is advanced under `accumulate`: Accelerate passes over all but one call in so many."""
    every = next(
        (
            one
            for call in script.calls_of("Accelerator")
            if (one := call.arguments.get("gradient_accumulation_steps")) is not None
            and isinstance(one.value, int)
            and (one.value > 1 or any(place.key.startswith("-") for place in one.via))
        ),
        None,
    )
    if every is None or "step_scheduler_with_optimizer" in script.source:
        return
    values = values_of(script)
    for loop in loops(script):
        for call in loop.has("step"):
            under = any(around.kind == "with" and ".accumulate(" in around.name for around in call.around)
            name = call.on.rpartition(".")[2]
            if (
                not is_scheduler(call)
                or not under
                or _repeated(script, call)
                or not re.search(rf"prepare\([^)]*\b{name}\b", script.source)
            ):
                continue
            made, total = _made(name, values)
            if made is not None:
                shown = str(every.value) if every.value > 1 else "gradient_accumulation_steps"
                yield _finding(script, made, name, total, shown, call)
                return


def _repeated(script: Script, call: Call) -> bool:
    """It stands in a loop of its own, which makes up for the steps that are passed over."""
    rounds = ast.For | ast.While | ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp
    around = [
        node
        for node in ast.walk(script.tree)
        if isinstance(node, rounds) and node.lineno <= call.place.line <= (node.end_lineno or node.lineno)
    ]
    last = max(around, key=lambda one: (one.lineno, one.col_offset), default=None)
    return last is not None and not re.search(r"backward|loss", ast.unparse(last))


def _made(name: str, values: Values) -> tuple[ast.Call | None, str]:
    """Where a schedule is made that `prepare` has given back under the same name."""
    held = Values()
    held.update(values)
    held[name] = [
        one for one in values.get(name, ()) if not (isinstance(one, ast.Call) and _PREPARES.search(_func(one)))
    ]
    return counted(name, held) if len(held[name]) == 1 else (None, "")


def _func(call: ast.Call) -> str:
    return ast.unparse(call.func)


_PREPARES = re.compile(r"\.prepare$")


def _finding(script: Script, made: ast.Call, name: str, total: str, every: str, advanced: Call) -> Finding:
    return Finding(
        f"`{name}` is made for `{total[:60]}` steps, which counts micro-batches, and advanced once in `{every}` of them:"
        " the learning rate falls over a part of its schedule alone, and a warm-up lasts as many times longer.",
        place=place_of(script, made),
        evidence=Evidence(Level.TEXT, {"counted": total[:80], "advanced once in": every}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Divide its steps by `{every}`.",
            accuracy="The learning rate falls to its end.",
            measure="Print the learning rate of the last step.",
        ),
        also=(advanced.place,),
    )


IN_BATCHES = _LENGTH
"""A number of steps that comes from the length of a loader."""


def total_of(name: str, values: Values) -> tuple[ast.Call | None, str]:
    """Where the only schedule of this name is made, and the number of steps that it is made for."""
    made = next((one for one in values.get(name, ()) if isinstance(one, ast.Call)), None)
    if made is None or len(values[name]) != 1 or not _MADE.search(ast.unparse(made.func)):
        return None, ""
    return made, _total(made, values)


def counted(name: str, values: Values) -> tuple[ast.Call | None, str]:
    """Where a schedule of this name is made for all micro-batches of a run, and what it counts."""
    made, total = total_of(name, values)
    return (made, total) if _LENGTH.search(total) and not _BY_UPDATES.search(total) else (None, "")


def _total(made: ast.Call, values: Values) -> str:
    """The number of steps that it is made for, its names followed; empty where they cannot be."""
    given = {one.arg: one.value for one in made.keywords}
    func = ast.unparse(made.func).rpartition(".")[2]
    if func == "OneCycleLR" and "steps_per_epoch" in given:
        return _followed(given["steps_per_epoch"], values)
    held = next((given[name] for name in _TOTALS if name in given), None)
    if held is None and len(made.args) > 1:
        at = {"CosineAnnealingLR": 1, "get_scheduler": 3}.get(func, 2)
        held = made.args[at] if len(made.args) > at else None
    return "" if held is None else _followed(held, values)


def _followed(node: ast.expr, values: Values, depth: int = 0) -> str:
    text = ast.unparse(node)
    for one in ast.walk(node) if depth < 5 else ():
        if isinstance(one, ast.Name | ast.Attribute) and (name := last_part(one)) in values:
            given = values[name]
            if len(given) > 1:
                return ""
            if not isinstance(given[0], ast.Call) or ast.unparse(given[0].func) in ("int", "max", "len", "math.ceil"):
                text = re.sub(
                    rf"(?<![\w.]){re.escape(ast.unparse(one))}\b(?!\()",
                    f"({_followed(given[0], values, depth + 1)})",
                    text,
                )
    return text
