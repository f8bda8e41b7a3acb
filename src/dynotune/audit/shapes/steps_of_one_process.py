"""Steps are worked out from the rows of the data and the batch of one process, and neither accumulation nor processes divide
them: a run is that many times longer than was meant, or its warm-up is."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.names_of_settings import ACCUMULATION
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import RANKS, Values, on_several, values_of
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import is_scheduler, loops, place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.shapes.counted_in_micro_batches import total_of

_ARGUMENTS = re.compile(r"(?:TrainingArguments|SFTConfig|DPOConfig|ORPOConfig|KTOConfig|RewardConfig)$")
_STEPS = ("max_steps", "warmup_steps", "num_training_steps")
_BATCH = re.compile(r"batch|bsz?(?![a-z])|per_device|micro|mbs", re.IGNORECASE)
_WHOLE = re.compile(r"global|total|effective|\beff|step_size|per_step|per_update", re.IGNORECASE)
_LOADER = re.compile(r"loader|(?<![a-z])dl\b|batches", re.IGNORECASE)
_PASSES = ("int", "max", "min", "round", "float", "ceil", "floor")


@dataclass(slots=True)
class _Quotient:
    above: list[ast.expr] = field(default_factory=list)
    below: list[ast.expr] = field(default_factory=list)
    through: list[ast.expr] = field(default_factory=list)
    """Values of names on the way."""

    @property
    def rows(self) -> str:
        """`len(rows)` among the factors; empty: it counts no rows."""
        for one in self.above:
            text = ast.unparse(one)
            if re.fullmatch(r"len\([^()]+\)|[\w.\[\]'\"]+\.num_rows", text) and not _LOADER.search(text):
                return text
        return ""

    @property
    def divisors(self) -> str:
        return " ".join(ast.unparse(one) for one in self.below)


def steps_of_one_process(script: Script, project: Project) -> Iterator[Said]:
    if not re.search(r"\blen\(|num_rows", script.source) or "/" not in script.source:
        return
    values = values_of(script)
    found = list(_of_a_trainer(script, project, values))
    yield from found or _of_a_loop(script, project, values)


def _quotient(node: ast.expr, values: Values, into: _Quotient, *, below: bool = False, depth: int = 0) -> None:
    match node:
        case ast.BinOp(left, ast.Mult(), right):
            _quotient(left, values, into, below=below, depth=depth)
            _quotient(right, values, into, below=below, depth=depth)
        case ast.BinOp(left, ast.Div() | ast.FloorDiv(), right):
            _quotient(left, values, into, below=below, depth=depth)
            _quotient(right, values, into, below=not below, depth=depth)
        case ast.BinOp(left, ast.Add() | ast.Sub(), ast.Constant()):
            _quotient(left, values, into, below=below, depth=depth)
        case ast.UnaryOp(ast.USub(), operand):
            _quotient(operand, values, into, below=below, depth=depth)
        case ast.Call(func, args, _) if args and ast.unparse(func).rpartition(".")[2] in _PASSES:
            held = next((one for one in args if not isinstance(one, ast.Constant)), args[0])
            _quotient(held, values, into, below=below, depth=depth)
        case ast.Name(name) if (
            depth < 6
            and len(values.get(name, ())) == 1
            and not isinstance(values[name][0], ast.Constant | ast.Subscript | ast.Attribute)
            and _is_worked_out(values[name][0])
        ):
            into.through.append(values[name][0])
            if below:
                into.below.append(node)  # its name may say what it holds
            _quotient(values[name][0], values, into, below=below, depth=depth + 1)
        case _:
            (into.below if below else into.above).append(node)


def _is_worked_out(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        last = ast.unparse(value.func).rpartition(".")[2]
        return last in _PASSES or last == "len"
    return isinstance(value, ast.BinOp | ast.UnaryOp)


def _of_a_trainer(script: Script, project: Project, values: Values) -> Iterator[Said]:
    """`max_steps=epochs * len(rows) // per_device`, of arguments that accumulate, or of several processes."""
    jobs = [
        job for job in project.jobs if script.file in job.files and job.trainer in (Trainer.TRANSFORMERS, Trainer.TRL)
    ]
    for node in ast.walk(script.tree) if jobs else ():
        if not isinstance(node, ast.Call) or not _ARGUMENTS.search(ast.unparse(node.func)):
            continue
        given = {one.arg: one.value for one in node.keywords if one.arg}
        for name in _STEPS:
            quotient = _Quotient()
            if name not in given:
                continue
            _quotient(given[name], values, quotient)
            missing = _missing(quotient, jobs, given.get("gradient_accumulation_steps"))
            if missing:
                first = next((one for one in quotient.through if "len(" in ast.unparse(one)), given[name])
                what = "the run is" if name == "max_steps" else "the warm-up is"
                yield _finding(
                    script,
                    first,
                    given[name],
                    f"`{name}` counts updates of all processes together",
                    quotient,
                    missing,
                    what,
                )
                return


def _missing(quotient: _Quotient, jobs: list[Job], accumulation: ast.expr | None) -> list[str]:
    """What should divide the rows beside the batch of one process."""
    below = quotient.divisors
    if not quotient.rows or not _BATCH.search(below) or _WHOLE.search(below):
        return []
    missing = []
    told = [number(job, "gradient_accumulation_steps") for job in jobs]
    literal = isinstance(accumulation, ast.Constant)
    if not ACCUMULATION.search(below) and (
        all(one is not None and one > 1 for one in told)
        or (accumulation is not None and not literal and all(one is None for one in told))
    ):
        missing.append("the accumulation")
    if not RANKS.search(below) and all((number(job, "num_processes") or 1) > 1 for job in jobs):
        missing.append("the number of processes")
    return missing


def _of_a_loop(script: Script, project: Project, values: Values) -> Iterator[Said]:
    """`get_linear_schedule_with_warmup(opt, 100, epochs * len(rows) // batch)` beside a `DistributedSampler`, or in a loop
    that accumulates."""
    source = code(script)
    if re.search(r"accelerat|deepspeed|LightningModule|Fabric", source) or "ched" not in source:
        return
    shared = on_several(script, project) and any(
        "DistributedSampler(" in one.source for one in connected(script, project)
    )
    for loop in loops(script):
        for call in loop.has("step"):
            made, total = total_of(call.on.rpartition(".")[2], values) if is_scheduler(call) else (None, "")
            if made is None or not total:
                continue
            quotient = _Quotient()
            _quotient(ast.parse(total, mode="eval").body, values, quotient)
            below = quotient.divisors
            if not quotient.rows or not _BATCH.search(below) or _WHOLE.search(below):
                continue
            missing = ["the number of processes"] if shared and not RANKS.search(total) else []
            if not call.each_step and _accumulates(loop.text) and not ACCUMULATION.search(total):
                missing.append("the accumulation")
            if missing:
                first = _first(total, values) or made
                yield _finding(
                    script, first, made, f"`{call.on}` is advanced once an update", quotient, missing, "the schedule is"
                )
                return


def _accumulates(text: str) -> bool:
    return re.search(r"%\s*\(?[\w.\"'\[\]]*(?:accum|grad_acc|gas\b)", text, re.IGNORECASE) is not None


def _first(total: str, values: Values) -> ast.expr | None:
    """Where the rows are counted."""
    lengths = re.findall(r"len\([^()]+\)", total)
    return next(
        (
            one
            for given in values.values()
            for one in given
            if lengths and lengths[0] in ast.unparse(one) and "/" in ast.unparse(one)
        ),
        None,
    )


def _finding(
    script: Script, first: ast.expr, used: ast.expr, who: str, quotient: _Quotient, missing: list[str], what: str
) -> Finding:
    both = " and ".join(missing)
    below = quotient.divisors
    return Finding(
        f"{who}, and is worked out from `{quotient.rows}` over `{below[:60]}` alone: {both}"
        f" {'are' if len(missing) > 1 else 'is'} not in it, and {what} that many times too long.",
        place=place_of(script, first),
        evidence=Evidence(Level.TEXT, {"rows": quotient.rows, "divided by": below[:80], "not divided by": both}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Divide by {both} as well, or count epochs (`num_train_epochs`, `warmup_ratio`)."
            if what != "the schedule is"
            else f"Divide by {both} as well: `len` of the loader counts one process's batches.",
            accuracy="The run, its warm-up and its schedule are as long as was meant.",
            measure="Print the learning rate and the epoch of the last step.",
        ),
        also=() if used is first else (place_of(script, used),),
    )
