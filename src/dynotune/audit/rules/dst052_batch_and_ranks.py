"""DST052: the accumulation that makes a total batch leaves the number of processes out, or takes it in wrongly."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import (
    RANKS,
    Values,
    factors,
    is_ranks,
    last_part,
    on_several,
    power_of_ranks,
    values_of,
)
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.accumulation_without_ranks import accumulation_without_ranks
from dynotune.audit.shapes.both_shared_out import both_shared_out, both_shared_out_by_the_shell
from dynotune.audit.shapes.counted_for_other_processes import counted_for_other_processes
from dynotune.audit.shapes.divided_by_both import divided_by_both
from dynotune.audit.shapes.divided_by_spread_gpus import divided_by_spread_gpus
from dynotune.audit.shapes.divided_though_counted import divided_though_counted
from dynotune.audit.shapes.fewer_micro_batches_than_ranks import fewer_micro_batches_than_ranks

_ACCUMULATION = re.compile(r"accum|grad_acc|gas\b|micro_?steps|num_micro", re.IGNORECASE)
_TOTAL = re.compile(
    r"(global|total|effective|target|desired|full|eff)\w*|^(train_)?(batch_size|batch|bs|bsz)$", re.IGNORECASE
)
_ROWS = re.compile(r"batch|bsz?(?![a-z])|examples|tokens|rows", re.IGNORECASE)
_NOT_ROWS = re.compile(r"(?<![a-z])(loss|losses|ms|time|times|secs?|seconds)(?![a-z])", re.IGNORECASE)
_EACH = re.compile(r"micro|per_(device|gpu|rank)|device_|local_|mini|mbs|batch|bsz|\bbs\b|rows", re.IGNORECASE)
_ALREADY_EACH = re.compile(r"per_?(device|gpu|rank)|micro", re.IGNORECASE)


_BATCHES = (
    "per_device_train_batch_size",
    "batch_size",
    "train_batch_size",
    "bs",
    "bsz",
    "micro_batch_size",
    "local_batch_size",
)


def check(project: Project, _: Project) -> Iterator[Said]:
    for script in project.scripts:
        yield from worked_out_wrongly(script, project)
        yield from both_shared_out(script, project)
        yield from divided_by_spread_gpus(script, project)
    for launch in project.launches:
        yield from counted_for_other_processes(launch, project)
        yield from accumulation_without_ranks(launch, project)
        yield from divided_by_both(launch, project)
        yield from both_shared_out_by_the_shell(launch, project)
        yield from divided_though_counted(launch, project)
        yield from fewer_micro_batches_than_ranks(launch, project)


def worked_out_wrongly(script: Script, project: Project) -> Iterator[Said]:
    """In one file: also for the rule that asks whether a claimed batch is right."""
    if not re.search(r"[/*]", code(script)) or not on_several(script, project):
        return
    values = values_of(script)
    elsewhere: set[str] | None = None
    ranked: dict[str, set[int]] = {}
    for name, value, at in _given(script):
        if _ACCUMULATION.search(name):
            if name not in ranked:  # once for each name: a made-up file gives one thousands of values
                ranked[name] = {id(one) for one in values.get(name, ()) if RANKS.search(ast.unparse(one))}
            if elsewhere is None:
                elsewhere = {one for near in connected(script, project) for one in _divided_elsewhere(near)}
            if not ranked[name] - {id(value)} and name.lower() not in elsewhere:
                yield from _accumulation(script, name, value, at, values)
        elif "split_batches" not in script.source and (name in _BATCHES or _ALREADY_EACH.search(name)):
            held = _bare(value)
            yield from _batch(script, name, held, at, project) if held is not None else ()
        if isinstance(at, ast.keyword) and name in _OF_EACH:
            yield from _multiplied(script, name, value, at, values)


def _given(script: Script) -> Iterator[tuple[str, ast.expr, ast.AST]]:
    """Names, arguments and keys with what they are given, and functions with what they give."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            returned = [one for one in own_nodes(node) if isinstance(one, ast.Return) and one.value is not None]
            if len(returned) == 1 and returned[0].value is not None:
                yield node.name, returned[0].value, returned[0]
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            yield last_part(node.targets[0]), node.value, node
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg, node.value, node
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value, value
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "DataLoader":
            yield from (("batch_size", one, one) for one in node.args[1:2])


def _accumulation(script: Script, name: str, value: ast.expr, at: ast.AST, values: Values) -> Iterator[Said]:
    total, each = _quotient(value, values, gives=isinstance(at, ast.Return))
    if isinstance(at, ast.Return) and any(
        isinstance(one, ast.Name) and not _TOTAL.search(one.id) and not _EACH.search(one.id) and one.id not in values
        for one in ast.walk(value)
        if not isinstance(one, ast.Name)
        or one.id not in ("max", "int", "round", "math", "self", "cls", "args", "cfg", "config")
    ):
        return  # a parameter of which nothing is known
    if not total or not each or re.search(r"len\(|steps|samples|dataset", ast.unparse(value)):
        return
    if _NOT_ROWS.search(f"{name} {ast.unparse(value)}"):
        return  # a time or a loss of each micro-batch
    power = power_of_ranks(value, values)
    if power is None or power == -1:
        return
    how_given = "returns" if isinstance(at, ast.Return) else "="
    how = {0: "the number of processes is not in it", 1: "it is multiplied by the number of processes"}
    yield Finding(
        f"`{name} {how_given} {ast.unparse(value)}` makes one process come to the whole batch, and"
        f" {how.get(power, 'the number of processes is in it twice')}: with N of them a step holds"
        f" {'N times' if power == 0 else 'N x N times' if power > 0 else 'one N-th of'} the rows that were meant.",
        place=place_of(script, at),
        evidence=Evidence(Level.TEXT, {"accumulation": ast.unparse(value), "power of the ranks": power}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Divide by the number of processes as well: `{total} // ({each} * world_size)`.",
            accuracy="Steps hold the rows that were meant; the learning rate may have been tuned to the others.",
            measure="Print the rows of a step: micro-batch x accumulation x processes.",
        ),
    )


def _quotient(value: ast.expr, values: Values, *, gives: bool = False) -> tuple[str, str]:
    """A total batch and what it is divided by first, as the source calls them. gives: a function whose name says that it
    gives an accumulation, and whose parameters need not say of what."""
    node = value
    while isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in ("max", "int", "round", "math.ceil"):
        node = next((one for one in node.args if not isinstance(one, ast.Constant)), node.args[0])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        node = node.left
    divisors: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Div):
        divisors.append(node.right)
        node = node.left
    each = [ast.unparse(one) for one in divisors if _EACH.search(ast.unparse(one)) and not is_ranks(one)]
    if not each:
        return "", ""
    total = last_part(node)
    large = isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value >= 8
    plain = bool(re.fullmatch(r"(train_)?(batch_size|batch|bs|bsz)", total, re.IGNORECASE))
    named = (_is_total(total, values) or (gives and bool(_TOTAL.search(total)))) and (
        not plain or bool(_ALREADY_EACH.search(each[0]) or "mini" in each[0])
    )
    if not named and isinstance(node, ast.Name) and len(given := values.get(node.id, [])) == 1:
        whole: ast.expr = given[0]
        while isinstance(whole, ast.BinOp) and isinstance(whole.op, ast.FloorDiv | ast.Div):
            whole = whole.left
        named = _is_total(last_part(whole), values)  # `per_rank = total // world_size`
    return (ast.unparse(node), each[0]) if named or large else ("", "")


def _is_total(name: str, values: Values) -> bool:
    """It is called a total, of a batch or of what is a number in the file."""
    given = values.get(name, [])
    number = len(given) == 1 and isinstance(given[0], ast.Constant) and type(given[0].value) is int
    return bool(_TOTAL.search(name)) and (number or bool(_ROWS.search(name)))


def _divided_elsewhere(script: Script) -> set[str]:
    """Names, in small letters, of `name //= world_size`, or of a use divided by the ranks."""
    ranks = r"[\w.()\"'\[\]]*(?:" + RANKS.pattern + ")"
    each = re.finditer(rf"\b(\w+)(?=['\"\]]*\s*//?=?\s*\(?{ranks})", script.source, re.IGNORECASE)
    return {found[1].lower() for found in each}


_OF_EACH = ("per_device_train_batch_size", "per_device_eval_batch_size")


def _multiplied(script: Script, name: str, value: ast.expr, at: ast.AST, values: Values) -> Iterator[Said]:
    """`per_device_train_batch_size=micro * world_size`: the trainer gives as much to each process."""
    if not any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult) for one in ast.walk(value)):
        return
    if power_of_ranks(value, values) != 1:
        return
    yield Finding(
        f"`{name} = {ast.unparse(value)}` multiplies what each process takes by the number of processes: with N of them a"
        " step holds N x N times the rows of one micro-batch.",
        place=place_of(script, at),
        evidence=Evidence(Level.TEXT, {"batch": ast.unparse(value)}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Give the rows of one process: the trainer multiplies by their number itself.",
            accuracy="Steps hold the rows that were meant.",
            measure="Print the rows of a step: micro-batch x accumulation x processes.",
        ),
    )


def _bare(value: ast.expr) -> ast.BinOp | None:
    """The quotient in `max(1, batch // ranks)` and `int(batch / ranks)`."""
    while isinstance(value, ast.Call) and ast.unparse(value.func) in ("max", "int", "round", "math.ceil", "math.floor"):
        parts = [one for one in value.args if not isinstance(one, ast.Constant)]
        if len(parts) != 1:
            return None
        value = parts[0]
    return value if isinstance(value, ast.BinOp) else None


def _batch(script: Script, name: str, value: ast.BinOp, at: ast.AST, project: Project) -> Iterator[Said]:
    """A batch that is one process's already, divided among the processes once more."""
    whole: ast.expr = value
    divisors: list[ast.expr] = []
    while isinstance(whole, ast.BinOp) and isinstance(whole.op, ast.FloorDiv | ast.Div):
        divisors += factors(whole.right)
        whole = whole.left
    held = last_part(whole)
    if not held or not any(map(is_ranks, divisors)):
        return
    if not _ALREADY_EACH.search(held) and not _is_said_to_be(held, script, project):
        return
    yield Finding(
        f"`{name} = {ast.unparse(value)}` divides what each process takes by the number of processes once more.",
        place=place_of(script, at),
        evidence=Evidence(Level.TEXT, {"batch": ast.unparse(value)}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Take `{held}` as it is, or call the total batch what it is.",
            accuracy="Steps hold the rows that were meant.",
            measure="Print the rows of a step: micro-batch x accumulation x processes.",
        ),
    )


def _is_said_to_be(name: str, script: Script, project: Project) -> bool:
    """By a flag's help or a comment beside it: `help="batch size per GPU"`."""
    each = rf"\b{re.escape(name)}\b[^\n]{{0,120}}\b(?:per|each)[ -](?:gpu|device|process|card|rank|worker)\b"
    return any(re.search(each, one.source, re.IGNORECASE) for one in connected(script, project))


_SCRIPT = """import os
from transformers import Trainer, TrainingArguments

world_size = int(os.environ.get("WORLD_SIZE", 1))
TOTAL_BATCH, MICRO_BATCH = 128, 4
args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=MICRO_BATCH,
    gradient_accumulation_steps=%s,
)
Trainer(model, args, train_dataset=rows).train()
"""


_RUN = """NUM_GPUS={}
ACCUMULATION=$((64 / NUM_GPUS / 2))
accelerate launch --num_processes 4 -m trl.scripts.sft --config sft.yaml --gradient_accumulation_steps $ACCUMULATION
"""
_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nper_device_train_batch_size: 2\n"


RULE = Rule(
    code="DST052",
    name="batch-and-ranks",
    summary="Accumulation or batch is divided by the number of processes wrongly, or not at all.",
    group=Group.CORRECTNESS,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="A step holds micro-batch x accumulation x processes rows. An accumulation that is worked out from a total"
        " batch has to be divided by the number of processes once, and by the number that is started.",
        why="A run on eight GPUs takes steps of eight times the rows, an eighth as many, at the learning rate of"
        " the small"
        " batch; its log still prints the batch that was meant. Accelerate's `--num_processes` counts those of all"
        " machines.",
        detected="E0: a total batch divided by a micro-batch, in a file that runs on several processes by its text"
        " or by a"
        " command of the project; the power of the number of processes in the product is followed through names. E1: the"
        " variable that a shell script works its accumulation out with, against the launcher's flags, and against a"
        " script"
        " that divides the flag once more, or divides"
        " fewer micro-batches than there are processes; a shell script that divides a total by a micro-batch alone, and"
        " starts several processes;"
        " or an accumulation divided by the GPUs over which `device_map` spreads one model in one process.",
        proven="Rows of the data over steps of an epoch.",
        deliberate=(
            "The total is meant for each process.",
            "Part of the GPUs serve something else, and the batch is meant smaller.",
        ),
        sources=("Arithmetic", "accelerate's documentation of `accelerate launch`"),
    ),
    bad=Example({"train.py": _SCRIPT % "TOTAL_BATCH // MICRO_BATCH"}, says="not in it"),
    good=Example({"train.py": _SCRIPT % "TOTAL_BATCH // (MICRO_BATCH * world_size)"}),
    also_bad=(Example({"run.sh": _RUN.format(8), "sft.yaml": _SFT}, says="worked out for"),),
    formerly=("DST056",),
    former_names=("counted-for-other-processes",),
)
