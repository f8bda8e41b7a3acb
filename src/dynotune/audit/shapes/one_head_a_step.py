"""Each step runs one of a model's parts alone, and DDP waits for the gradients of the others."""

import ast
import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import on_several
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, place_of, text_at
from dynotune.audit.facts.together import connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_WRAPS = ("DistributedDataParallel", "DDP")
_PARTS = re.compile(r"\b(?:nn\.\w+|\w*(?:Linear|Head|Embedding|Sequential|MLP|Module|LSTM)\w*|\w+\.from_pretrained)\(")
_ALL = re.compile(
    r"find_unused_parameters\s*=\s*True|static_graph\s*=\s*True|_set_static_graph|\.parameters\(\)\)\s*\*\s*0|\* 0(?:\.0)?\b"
)


def one_head_a_step(script: Script, project: Project) -> Iterator[Said]:
    """`if task == "score": return self.score(h)`, else `self.label(h)`, under `DDP(model)`."""
    wraps = [call for call in script.calls_of(*_WRAPS) if "find_unused_parameters" not in call.arguments]
    if not wraps or not on_several(script, project):
        return
    near = connected(script, project)
    if any(_ALL.search(one.source) for one in near) or not any(True for one in near for _ in loops(one)):
        return
    owners = [(one, node) for one in near for node in ast.walk(one.tree) if isinstance(node, ast.ClassDef)]
    for of, owner in owners:
        if not _is_made(owner.name, wraps[0], script):
            continue
        for test, inside, outside in _branches(owner):
            yield Finding(
                f"`{owner.name}.forward` runs {_names(inside)} where `{ast.unparse(test.test)}`"
                f" and {_names(outside) if outside else 'leaves it out'} otherwise, and"
                f" `{text_at(script, wraps[0].place)[:60]}`"
                " waits for a gradient of every parameter: the second step stops with `Expected to have finished"
                " reduction`.",
                place=wraps[0].place,
                evidence=Evidence(Level.TEXT, {"in the branch": sorted(inside), "otherwise": sorted(outside)}),
                stake=Stake(AtStake.STOPS),
                remedy=Remedy(
                    Risk.SAFE,
                    "Give `find_unused_parameters=True`, or run both parts at each step and add what is unused"
                    " times zero.",
                    effort=Effort.LINE,
                    breaks="Each step then walks the graph for parameters without a gradient.",
                ),
                also=(place_of(of, test),),
            )
            return


def _names(parts: set[str]) -> str:
    return " and ".join(f"`self.{one}`" for one in sorted(parts))


def _is_made(name: str, wrap: Call, script: Script) -> bool:
    """What is wrapped is made by this class, in the call or by the name that it gets."""
    text = text_at(script, wrap.place)
    if re.search(rf"\b{name}\(", text):
        return True
    given = re.match(r"[\w.]+\(\s*(?:module\s*=\s*)?(\w+)", text)
    return (
        given is not None
        and re.search(rf"^\s*{given[1]}\s*=\s*(?:\w+\.)?{name}\(", script.source, re.MULTILINE) is not None
    )


def _branches(owner: ast.ClassDef) -> Iterator[tuple[ast.If, set[str], set[str]]]:
    """Conditions on a word that `forward` gets, under which it returns, with the parts that run there alone and elsewhere
    alone."""
    methods: Mapping[str, ast.FunctionDef] = {one.name: one for one in owner.body if isinstance(one, ast.FunctionDef)}
    made, forward = methods.get("__init__"), methods.get("forward")
    if made is None or forward is None:
        return
    parts = {
        target.attr
        for node in ast.walk(made)
        if isinstance(node, ast.Assign) and _PARTS.search(ast.unparse(node.value))
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }
    words = {one.arg for one in (*forward.args.args, *forward.args.kwonlyargs)} - {"self"}
    for number, node in enumerate(forward.body):
        if not isinstance(node, ast.If) or not _is_of_a_word(node.test, words):
            continue
        returns = isinstance(node.body[-1], ast.Return)
        rest = [*node.orelse, *(forward.body[number + 1 :] if returns else [])]
        before = _used(forward.body[:number], parts) | (set() if returns else _used(forward.body[number + 1 :], parts))
        inside, outside = _used(node.body, parts) - before, _used(rest, parts) - before
        if (returns or node.orelse) and inside - outside and outside - inside:
            yield node, inside - outside, outside - inside


def _is_of_a_word(test: ast.expr, words: set[str]) -> bool:
    """`task == "score"`: a parameter beside a text or a number."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id in words
        and all(isinstance(one, ast.Constant) and isinstance(one.value, str | int) for one in test.comparators)
        and all(isinstance(one, ast.Eq | ast.NotEq) for one in test.ops)
    )


def _used(body: list[ast.stmt], parts: set[str]) -> set[str]:
    return {
        node.attr
        for one in body
        for node in ast.walk(one)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and node.attr in parts
    }
