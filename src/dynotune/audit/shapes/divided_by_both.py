"""A launcher divides a batch or its accumulation by the number of processes, and the script that it starts does so again."""

import ast
import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import RANKS, factors, last_part
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import reached
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_GIVES = re.compile(r"^\s*(?:export\s+|local\s+)?(\w{1,80})=[\"']?\$\(")
_FLAG = re.compile(r"--([\w-]{1,80})[= ]+[\"']?\$\{?(\w{1,80})\}?[\"']?(?=\s|\\|$)")
_INLINE = re.compile(r"--([\w-]{1,80})[= ]+[\"']?(\$\(\([^)\n]{1,200}\)\))")
_OF_ROWS = re.compile(r"accum|grad_acc|gas\b|batch|\bbsz?\b", re.IGNORECASE)


def divided_by_both(launch: Launch, project: Project) -> Iterator[Said]:
    script = next((one for one in project.scripts if one.file == launch.script), None)
    if script is None:
        return
    divided = _divided(launch, project)
    for one in reached(script, project) if divided else ():
        for node in ast.walk(one.tree):
            if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.FloorDiv | ast.Div):
                continue
            name = _name(node.left)
            if name in divided and any(RANKS.search(ast.unparse(part)) for part in factors(node.right)):
                yield _finding(one, node, name, divided[name])
                return


def _divided(launch: Launch, project: Project) -> Mapping[str, Place]:
    """Flags (and variables of the environment) of a batch that the launcher's file has divided by its number of processes,
    with the line that does."""
    lines = project.texts.get(launch.file, "").split("\n")
    given: dict[str, Place] = {}
    for number, line in enumerate(lines, 1):
        found = _GIVES.match(line)
        if found is not None and _by_ranks(line):
            given[found[1]] = Place(launch.file, number)
    flags: dict[str, Place] = {name: place for name, place in given.items() if name in launch.variables}
    start, end = launch.place.line, max(launch.place.end_line, launch.place.line)
    for number, line in enumerate(lines[start - 1 : end], start):
        for name, variable in _FLAG.findall(line):
            if variable in given:
                flags[name.replace("-", "_")] = given[variable]
        for name, worked in _INLINE.findall(line):
            if _by_ranks(worked):
                flags[name.replace("-", "_")] = Place(launch.file, number)
    return {name: place for name, place in flags.items() if _OF_ROWS.search(name)}


def _by_ranks(text: str) -> bool:
    """`TOTAL / NUM_GPUS / EACH`, `TOTAL / (EACH * NUM_GPUS)`: a name of ranks behind a stroke."""
    _, _, behind = text.partition("/")
    return any(RANKS.search(name) for name in re.findall(r"[A-Za-z_]\w*", behind))


def _name(node: ast.expr) -> str:
    """`accum` of `args.accum`, and of `int(os.environ["accum"])`."""
    while isinstance(node, ast.Call) and ast.unparse(node.func) in ("int", "max", "round") and node.args:
        node = next((one for one in node.args if not isinstance(one, ast.Constant)), node.args[0])
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.environ.get", "os.getenv") and node.args:
        return str(node.args[0].value) if isinstance(node.args[0], ast.Constant) else ""
    return last_part(node)


def _finding(script: Script, node: ast.BinOp, name: str, at: Place) -> Finding:
    return Finding(
        f"`{ast.unparse(node)}` divides `{name}` by the number of processes, and `{at.file}` has done so already (line"
        f" {at.line}): with N of them a step holds one N-th of the rows that were meant.",
        place=place_of(script, node),
        evidence=Evidence(Level.TEXT, {"divided": ast.unparse(node), "in the launcher at line": at.line}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Divide in one place: pass the total, or take what is passed as it is.",
            accuracy="Steps hold the rows that were meant.",
            measure="Print the rows of a step: micro-batch x accumulation x processes.",
        ),
        also=(at,),
    )
