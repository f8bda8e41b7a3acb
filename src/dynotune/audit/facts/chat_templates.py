"""Chat templates that a run puts on its tokenizer: as text, from a file, or another model's."""

import ast
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynotune.audit.facts.asked import given
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.place import Place

_KEYS = ("chat_template_path", "chat_template", "chat_template_jinja", "chat_template_file")
_FILE = re.compile(r"[\w./-]+\.(?:jinja2?|j2)$")


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    place: Place
    """Where it is put on."""

    shown: str
    """What is written there."""

    text: str = ""
    """In Jinja; empty: it is another model's."""

    home: Place | None = None
    """Where the text stands, if elsewhere."""

    of_model: str = ""
    """Whose it is, where it is taken from another model's tokenizer."""


def of_job(job: Job, project: Project) -> Iterator[ChatTemplate]:
    """That the configuration names: a file of the project, or the text itself."""
    for name in _KEYS:
        key = given(job, name)
        if key is None or not isinstance(key.value, str):
            continue
        if "{%" in key.value or "{{" in key.value:
            yield ChatTemplate(key.place, name, key.value)
        elif (file := _file(key.value, key.place.file, project)) is not None:
            yield ChatTemplate(key.place, f"{name}: {key.value}", project.templates[file], Place(file, 1))


def of_scripts(program: Sequence[Script], project: Project) -> Iterator[ChatTemplate]:
    """`tokenizer.chat_template = ...`: a text, a name of one here or in another file, a file's content, another's."""
    for script in program:
        for node in ast.walk(script.tree) if "chat_template" in script.source else ():
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                if node.targets[0].attr == "chat_template":
                    yield from _put(node, node.value, ast.unparse(node.targets[0]), script, project)
            elif isinstance(node, ast.Call):
                for word in node.keywords:
                    if word.arg == "chat_template" and "apply_chat_template" not in ast.unparse(node.func):
                        yield from _put(node, word.value, "chat_template", script, project)


def _put(node: ast.AST, value: ast.expr, shown: str, script: Script, project: Project) -> Iterator[ChatTemplate]:
    place = place_of(script, node)
    held = followed(value, script, project)
    if held is None:
        return
    home, found = held
    there = None if found is value else place_of(home, found)
    text = found.value if isinstance(found, ast.Constant) and isinstance(found.value, str) else ""
    if "{%" in text or "{{" in text:
        yield ChatTemplate(place, shown, text, there)
        return
    source = ast.unparse(found)
    named = next((one for one in _strings(found) if _FILE.search(one)), "")
    if named and re.search(r"\bread_text\(|\bopen\(|\.read\(", source):
        if (file := _file(named, home.file, project)) is not None:
            yield ChatTemplate(place, shown, project.templates[file], Place(file, 1))
    elif isinstance(found, ast.Attribute) and found.attr == "chat_template":
        model = _model_of(found.value, home)
        if model:
            yield ChatTemplate(place, shown, "", there, model)


def followed(value: ast.expr, script: Script, project: Project) -> tuple[Script, ast.expr] | None:
    """What stands behind a name: of this file, or of one that it is imported from."""
    name, home = "", script
    if isinstance(value, ast.Name):
        dotted = script.imports.get(value.id, "")
        name = dotted.rpartition(".")[2] or value.id
        home = _file_of(dotted.rpartition(".")[0], project) or script if dotted else script
    elif isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id in script.imports:
        there = _file_of(script.imports[value.value.id], project)
        if there is None:
            return script, value
        name, home = value.attr, there
    else:
        return script, value
    given_to = [
        node.value
        for node in ast.walk(home.tree)
        if isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == name for one in node.targets)
    ]
    return (home, given_to[0]) if len(given_to) == 1 else None


def _file_of(dotted: str, project: Project) -> Script | None:
    last = dotted.lstrip(".").rpartition(".")[2]
    found = [one for one in project.scripts if last and posixpath.basename(one.file) == f"{last}.py"]
    return found[0] if len(found) == 1 else None


def _strings(node: ast.AST) -> Iterator[str]:
    yield from (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))


def _file(named: str, beside: str, project: Project) -> str | None:
    """A template of the project by its path from the root or from a file, or by the only name that ends so."""
    tail = posixpath.normpath(named).lstrip("./")
    for one in (tail, posixpath.normpath(posixpath.join(posixpath.dirname(beside), named))):
        if one in project.templates:
            return one
    ending = [file for file in project.templates if file.endswith(f"/{tail}") or tail.endswith(f"/{file}")]
    return ending[0] if len(ending) == 1 else None


def _model_of(node: ast.expr, script: Script) -> str:
    """The model whose tokenizer an expression is."""
    for call in script.calls_of("from_pretrained"):
        inside = isinstance(node, ast.Call) and call.place.line == node.lineno
        if not inside and not (isinstance(node, ast.Name) and call.result == node.id):
            continue
        setting = call.arguments.get("pretrained_model_name_or_path") or call.arguments.get("0")
        if setting is not None and isinstance(setting.value, str):
            return setting.value
    return ""
