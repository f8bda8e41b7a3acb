"""A script divides its accumulation by the number of processes, and a comment or document multiplies it by that number."""

import ast
import math
import re
from collections.abc import Iterator
from typing import Any

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.names_of_settings import ACCUMULATION
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import is_ranks, last_part, values_of
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import reached
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_EACH = re.compile(
    r"^(per_device_(train_)?|micro_|mini_|train_)?(batch_size|batch|bsz?)$|^(micro_batch|mbs)$", re.IGNORECASE
)
_TERM = r"\d+(?:\s+(?!x\b)[a-zA-Z][\w-]{0,14}){0,3}"
_TERMS = rf"{_TERM}(?:\s*(?:[*x\u00d7]|times)\s*{_TERM}){{1,4}}"
_PRODUCT = re.compile(rf"{_TERMS}\s*(?:=|is|->)\s*(\d+)\b|\b(\d+)\s*[=(]\s*{_TERMS}")


def divided_though_counted(launch: Launch, project: Project) -> Iterator[Said]:
    """`--gradient_accumulation_steps 8` of 8 GPUs under `# 2 x 8 steps x 8 GPUs = 128`, and `args....steps // world`."""
    flag = launch.launcher_flags.get("num_processes") or launch.launcher_flags.get("nproc_per_node")
    script = next((one for one in project.scripts if one.file == launch.script), None)
    if script is None or flag is None or type(flag.value) is not int or flag.value < 2:
        return
    for one in reached(script, project):
        for node, name in _divided(one):
            steps = _value(name, launch, script, project)
            rows = next((held for held in _rows(launch, script, project)), None)
            if type(steps) is not int or steps < 2:
                continue
            where = _counted(steps, flag.value, rows, project)
            if where is not None:
                yield _finding(one, node, name, steps, flag.value, where)
                return


def _divided(script: Script) -> Iterator[tuple[ast.AST, str]]:
    """Accumulations, as an option names them, over the number of processes."""
    values = values_of(script) if "//" in script.source or "/" in script.source else None
    for node in ast.walk(script.tree) if values is not None else ():
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Div):
            left: ast.expr = node.left
            right = node.right
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.FloorDiv | ast.Div):
            left, right = node.target, node.value
        else:
            continue
        name = last_part(left)
        if not ACCUMULATION.search(name) or not is_ranks(right):
            continue
        given = values.get(name, []) if values is not None else []
        if isinstance(left, ast.Name) and any(isinstance(one, ast.BinOp) for one in given):
            continue  # worked out from a total before
        yield node, name


def _value(name: str, launch: Launch, script: Script, project: Project) -> Any:
    """Of an option: the command's, else the configuration's that it names, else the parser's default."""
    if name in launch.flags:
        return launch.flags[name].value
    for config in project.configs:
        if config.file in launch.configs:
            for path in config.places:
                if path.rpartition(".")[2] == name:
                    return config.at(path)
    for one in reached(script, project):
        found = one.constants.get(f"--{name}") or one.constants.get(f"--{name.replace('_', '-')}")
        if found is not None:
            return found.value
    return None


def _rows(launch: Launch, script: Script, project: Project) -> Iterator[int]:
    """Rows of a micro-batch, by the names that options have for it."""
    names = [name for name in launch.flags if _EACH.match(name)]
    names += [path.rpartition(".")[2] for one in project.configs if one.file in launch.configs for path in one.places]
    names += [name.lstrip("-").replace("-", "_") for one in reached(script, project) for name in one.constants]
    for name in dict.fromkeys(names):
        if _EACH.match(name) and type(value := _value(name, launch, script, project)) is int:
            yield value


def _counted(steps: int, processes: int, rows: int | None, project: Project) -> Place | None:
    """Where a comment or a document says that the processes come on top: in a product that is right."""
    for file, text in {**project.texts, **project.documents}.items():
        is_prose = file in project.documents
        for number, line in enumerate(text.split("\n"), 1):
            said = line if is_prose else line.partition("#")[2]
            for found in _PRODUCT.finditer(said[:300]):
                total = int(found[1] or found[2])
                factors = [int(one) for one in re.findall(r"\d+", found[0])]
                factors.remove(total)
                ours = [steps, processes] if rows is None else [rows, steps, processes]
                if math.prod(factors) == total and sorted(factors) == sorted(ours):
                    return Place(file, number)
    return None


def _finding(script: Script, node: ast.AST, name: str, steps: int, processes: int, where: Place) -> Finding:
    return Finding(
        f"`{ast.unparse(node)}` divides {steps} by the {processes} processes, and `{where.file}` counts the processes on top"
        f" of {steps} (line {where.line}): a step holds {max(1, steps // processes)} micro-batches a process.",
        place=place_of(script, node),
        evidence=Evidence(Level.RESOLVED, {name: steps, "processes": processes, "counted at line": where.line}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Take the accumulation as it is given, or give the total and say so.",
            accuracy="Steps hold the rows that were meant.",
            measure="Print the rows of a step: micro-batch x accumulation x processes.",
        ),
        also=(where,),
    )
