"""A mark that answers are looked for by, which the project writes into its rows in other letters, or not at all."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Stake
from dynotune.audit.place import Place

_MOST_SCRIPTS = 40
"""Of a project whose scripts are all parts of one training."""

_LABEL = re.compile(r"(?:#+[ \t]*|\*\*)?[A-Za-z][\w ]{1,30}(?:\*\*)?:(?:\*\*)?|#+[ \t]*[A-Za-z][\w ]{1,30}")
"""What stands before a part of a row: `ASSISTANT:`, `### Response:`, `## Answer`."""

_HEADINGS = re.compile(r"(?:^|\n)[ \t]*(#{2,}[ \t]*[A-Za-z][\w ]{1,30}:?)")
_FIELD = re.compile(r"\{[A-Za-z_][\w\[\]'\"]*\}")
_STORES = re.compile(r"save_to_disk|to_json|to_parquet|json\.dumps?\(|\.write\(")
"""What a script does that makes rows for another one."""

_HEADS = re.compile(r"#{2,}[ \t]*[A-Za-z][\w ]{1,30}:?")


def written_otherwise(
    mark: str, place: Place, script: Script, project: Project, also: tuple[Place, ...] = ()
) -> Finding | None:
    """also: where the mark comes from."""
    core = mark.replace("\\n", "\n").strip()
    if not _LABEL.fullmatch(core) or len(project.scripts) > _MOST_SCRIPTS:
        return None
    names = {name for one in project.scripts for name in _names(core, one)}
    if any(_writes(core, one, names) for one in project.scripts):
        return None
    homes = {one.file: one for one in connected(script, project)}
    homes |= {one.file: one for one in project.scripts if _STORES.search(one.source)}
    rows = [(one, node, text) for one in homes.values() for node, text in _templates(one)]
    other = next((one for one in rows if _otherwise(core, one[2])), None)
    if other is None and _HEADS.fullmatch(core):
        headed = [one for one in rows if len(_HEADINGS.findall(one[2])) > 1]
        other = headed[0] if len(headed) == 1 else None
    if other is None or _data_has_it(core, project):
        return None
    home, node, text = other
    there = _otherwise(core, text) or _HEADINGS.findall(text)[-1].strip()
    return Finding(
        f"Answers are looked for by `{core}`, and the text that rows are made of has `{there}`: it never comes, so every"
        " label is masked, or none.",
        place=place,
        also=(*also, place_of(home, node)),
        evidence=Evidence(Level.TEXT, {"mark": core, "in the rows' text": there}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Write the mark once, as a constant, and take it from there in both places.",
            effort=Effort.LINE,
            accuracy="The loss is on the answers.",
            measure="Print the labels of one batch that are not -100.",
        ),
    )


def _otherwise(core: str, text: str) -> str:
    """The label in a text that differs from the mark in its letters' case, in spaces or in what stands around it."""
    bare = re.sub(r"[#*:\s]", "", core).lower()
    return next(
        (
            found
            for label in _LABEL.findall(text)
            if (found := label.strip()) != core
            and found.endswith(":") == core.endswith(":")
            and re.sub(r"[#*:\s]", "", found).lower() == bare
        ),
        "",
    )


def _templates(script: Script) -> Iterator[tuple[ast.AST, str]]:
    """Texts with places for data: f-strings, texts that are formatted, and sums of both, one string each."""
    inner: set[int] = set()
    for node in ast.walk(script.tree):
        if id(node) in inner:
            continue
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            inner |= {id(one) for one in ast.walk(node)}
            parts = [one for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            text = "\n".join(str(one.value) for one in parts)
            if len(parts) > 1:
                yield node, text
        elif isinstance(node, ast.JoinedStr):
            inner |= {id(one) for one in ast.walk(node)}
            yield node, "".join(str(one.value) if isinstance(one, ast.Constant) else "\0" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _FIELD.search(node.value):
            yield node, node.value


def _names(core: str, script: Script) -> Iterator[str]:
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is(core, node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (ast.unparse(one).rpartition(".")[2] for one in targets)


def _writes(core: str, script: Script, names: set[str]) -> bool:
    """The mark stands in a text besides where it has its name, or a name of it is put into one."""
    alone: set[int] = set()
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is(core, node.value):
            alone.add(id(node.value))
        elif isinstance(node, ast.Call) and not _formats(node):
            alone |= {id(one) for one in (*node.args, *(word.value for word in node.keywords)) if _is(core, one)}
        elif isinstance(node, ast.Compare):
            alone |= {id(one) for one in (node.left, *node.comparators) if _is(core, one)}
        elif isinstance(node, ast.Expr):
            alone.add(id(node.value))  # a text that says what a file does
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and core in node.value:
            if id(node) not in alone:
                return True
        elif names and _named(node, names):
            return True
    return False


def _is(core: str, node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.strip() == core


def _formats(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("format", "join", "append", "extend", "write")


def _named(node: ast.AST, names: set[str]) -> bool:
    """A name of the mark is put into a text."""
    put: Sequence[ast.expr] = ()
    if isinstance(node, ast.FormattedValue):
        put = (node.value,)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        put = (node.left, node.right)
    elif isinstance(node, ast.Call) and _formats(node):
        put = (*node.args, *(word.value for word in node.keywords))
    elif isinstance(node, ast.List | ast.Tuple):
        put = node.elts
    return any(
        isinstance(one, ast.Name | ast.Attribute) and ast.unparse(one).rpartition(".")[2] in names for one in put
    )


def _data_has_it(core: str, project: Project) -> bool:
    """A file of the project other than its scripts has the mark besides as a value by itself: a template, or rows."""
    scripts = {one.file for one in project.scripts}
    return any(
        core in text and not re.search(rf"[:=]\s*[\"']?(?:\\n)*{re.escape(core)}(?:\\n)*[\"']?\s*(?:$|\n|#)", text)
        for file, text in project.texts.items()
        if file not in scripts
    )
