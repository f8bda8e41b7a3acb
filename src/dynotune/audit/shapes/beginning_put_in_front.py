"""The beginning token is put in front of ids that a tokenizer has begun with it already, or of texts outside of scripts."""

import ast
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.asked import given
from dynotune.audit.facts.beginnings import MARKS
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.place import Place
from dynotune.audit.shapes.beginning_in_the_middle import tokenizes

_LEAST = 0.9
"""Of the first rows, that begin so."""


def put_in_front(script: Script) -> Iterator[ast.expr]:
    """`[tok.bos_token_id] + tok(text).input_ids`, also by a name, and `ids.insert(0, tok.bos_token_id)`."""
    if "bos_token_id" not in script.source:
        return
    rooms = [script.tree, *(one for one in ast.walk(script.tree) if isinstance(one, ast.FunctionDef | ast.Lambda))]
    for room in rooms:
        begun = {
            node.targets[0].id
            for node in own_nodes(room)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _begins(node.value, set())
        }
        for node in own_nodes(room):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                parts = list(_parts(node))
                if _is_bos(parts[0]) and len(parts) > 1 and _begins(parts[1], begun):
                    yield node
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "insert":
                of = node.func.value
                first = isinstance(node.args[0], ast.Constant) and node.args[0].value == 0 if node.args else False
                put = first and len(node.args) == 2 and isinstance(of, ast.Name) and of.id in begun
                if put and ast.unparse(node.args[1]).endswith(".bos_token_id"):
                    yield node


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _parts(node.left)
        yield from _parts(node.right)
    else:
        yield node


def _is_bos(node: ast.expr) -> bool:
    return isinstance(node, ast.List) and len(node.elts) == 1 and ast.unparse(node.elts[0]).endswith("bos_token_id")


def _begins(node: ast.expr, begun: set[str]) -> bool:
    """Ids that a tokenizer gives with its special tokens."""
    if isinstance(node, ast.Name):
        return node.id in begun
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return node.slice.lower is None and _begins(node.value, begun)
    call = node
    if (isinstance(node, ast.Attribute) and node.attr == "input_ids") or (
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == "input_ids"
    ):
        call = node.value
    elif not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("encode")):
        return False
    return (
        isinstance(call, ast.Call)
        and tokenizes(call)
        and not any(word.arg in ("add_special_tokens", None) for word in call.keywords)
    )


def configured(node: ast.expr, script: Script, project: Project) -> Place | None:
    """The place of a configuration's text that begins so, where an expression takes one: `cfg["prompt"].format(...)`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        node = node.left
    key = (
        node.slice.value
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
        else node.attr
        if isinstance(node, ast.Attribute)
        else None
    )
    files = {file for job in project.jobs if script.file in job.files for file in job.files}
    for config in project.configs if isinstance(key, str) else ():
        for path, place in config.places.items() if config.file in files or len(project.configs) == 1 else ():
            value = config.at(path)
            if path.rpartition(".")[2] == key and isinstance(value, str) and value.startswith(MARKS):
                return place
    return None


def rows_that_begin_so(job: Job, project: Project, mark: str) -> tuple[Place, Place] | None:
    """A data file's rows and the key that names them, where a trainer tokenises a column of text in it as it is."""
    column = _text_column(job)
    if not column:
        return None
    named = "\n".join(project.texts.get(file, "") for file in job.files)
    for file, rows in project.first_rows.items():
        if file not in named and file.rpartition("/")[2] not in named:
            continue
        texts = [row[column] for row in rows if isinstance(row.get(column), str)]
        if texts and sum(text.startswith(mark) for text in texts) >= _LEAST * len(rows):
            listed = given(job, "datasets") or given(job, "dataset_name")
            return Place(file, 1), listed.place if listed is not None else job.home
    return None


def _text_column(job: Job) -> str:
    if job.trainer is Trainer.TRL:
        return str(job.get("dataset_text_field") or "text")
    sets = job.get("datasets") if job.trainer is Trainer.AXOLOTL else None
    for one in sets if isinstance(sets, list | tuple) else ():
        if isinstance(one, Mapping) and one.get("type") == "completion":
            return str(one.get("field") or "text")
    return ""


def completions_of_axolotl(project: Project) -> list[Job]:
    """Jobs that tokenise a column of whole texts."""
    return [job for job in project.jobs if job.trainer is Trainer.AXOLOTL and _text_column(job)]
