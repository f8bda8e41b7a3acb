"""Items of a dictionary of settings in code, of which every other is taken by its key, and these by no line."""

import ast
import re
from collections.abc import Iterator, Sequence, Set

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected, leads_out
from dynotune.audit.place import Place

_NAMED = re.compile(r"(?:\w+_)?(?:config|cfg|conf|hparams|hyper_?params|params|settings|args)", re.IGNORECASE)
_TRAINS = re.compile(r"Trainer\(|\.backward\(")
_SHOWS = re.compile(
    r"^(?:print|pprint|wandb\.init|(?:json|yaml)\.(?:safe_)?dumps?|log(?:ger|ging)?\.info)$|\.init_trackers$"
)
_QUOTED = re.compile(r"[\"'](\w+)[\"']")
_NOTES = frozenset(
    {"name", "description", "notes", "note", "comment", "version", "tags", "author", "date", "project", "title"}
)


def items_that_nothing_reads(project: Project) -> Iterator[tuple[str, Sequence[tuple[str, Place]]]]:
    """The dictionary's name, with the keys and their places."""
    for script in project.scripts:
        for node in script.tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
            held = node.value if isinstance(node, ast.Assign) else None
            if not isinstance(target, ast.Name) or not isinstance(held, ast.Dict) or not _NAMED.fullmatch(target.id):
                continue
            keys = {key.value: key for key in held.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
            near = connected(script, project)
            if len(keys) != len(held.keys) or len(keys) < 4 or leads_out(near, project):
                continue
            if not any(_TRAINS.search(code(one)) for one in near) or not _by_key_alone(target.id, script, near):
                continue
            words = _words(near, held)
            unread = [(key, place_of(script, at)) for key, at in keys.items() if key not in words | _NOTES]
            if unread and 2 * len(unread) <= len(keys):
                yield target.id, unread


def _takes_a_word(call: ast.AST) -> bool:
    """`.get("lr", 1e-4)`."""
    return isinstance(call, ast.Call) and bool(call.args) and isinstance(call.args[0], ast.Constant)


def _words(near: Sequence[Script], held: ast.Dict) -> Set[str]:
    """What strings of the program say, and what is quoted in them, but for those of the dictionary itself."""
    own = {id(node) for node in ast.walk(held)}
    found: set[str] = set()
    for one in near:
        for node in ast.walk(one.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in own:
                found |= {node.value, *_QUOTED.findall(node.value)}
    return found


def _by_key_alone(name: str, script: Script, near: Sequence[Script]) -> bool:
    """Every use takes an item by a key that is written down; the name stands for nothing else."""
    for one in near:
        above = {child: node for node in ast.walk(one.tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(one.tree):
            if isinstance(node, ast.Attribute) and node.attr == name:
                return False
            if isinstance(node, ast.alias) and node.name == name and node.asname not in (None, name):
                return False
            if not isinstance(node, ast.Name) or node.id != name:
                continue
            parent = above[node]
            if isinstance(node.ctx, ast.Store):
                if one is not script or not isinstance(parent, ast.Assign) or parent not in script.tree.body:
                    return False
                continue
            by_key = isinstance(parent, ast.Subscript) and isinstance(parent.slice, ast.Constant)
            call = above[parent] if isinstance(parent, ast.keyword | ast.Attribute) else parent
            got = isinstance(parent, ast.Attribute) and parent.attr == "get" and _takes_a_word(call)
            shown = isinstance(call, ast.Call) and _SHOWS.search(ast.unparse(call.func)) is not None
            if not (by_key or got or shown):
                return False
    return True
