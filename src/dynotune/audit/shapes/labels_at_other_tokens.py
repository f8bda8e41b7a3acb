"""Labels that stand at other tokens than they are taken for: shifted before a model that shifts them, or masked by the
number of a prompt's characters."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.shapes.windows_shifted_twice import CAUSAL, OWN_LOSS, windows_shifted_twice

_FIRST = re.compile(r"^(?P<rows>[\w.\[\]'\"]+?)\[(?:\.\.\., |:, )?:-1\]")
_LATER = re.compile(r"^(?P<rows>[\w.\[\]'\"]+?)\[(?:\.\.\., |:, )?1:\]")
_WRAPS = re.compile(r"^(?:torch\.(?:tensor|as_tensor|from_numpy|LongTensor)|list|np\.array)\((.*)\)$")


def labels_at_other_tokens(script: Script, project: Project) -> Iterator[Said]:
    yield from _shifted_twice(script, project)
    yield from windows_shifted_twice(script, project)
    yield from _by_characters(script, project)


def _shifted_twice(script: Script, project: Project) -> Iterator[Said]:
    """`input_ids=ids[:, :-1], labels=ids[:, 1:]` for a model of transformers, which shifts labels itself."""
    if ":-1]" not in script.source or "labels" not in script.source:
        return
    sources = [code(one) for one in connected(script, project)]
    if not any(CAUSAL.search(one) for one in sources) or any(OWN_LOSS.search(one) for one in sources):
        return
    given = _given(script)
    for node in ast.walk(script.tree):
        pairs = _pairs(node)
        if "labels" not in pairs or "input_ids" not in pairs:
            continue
        rows, labels = (_bare(pairs[name], given) for name in ("input_ids", "labels"))
        first, later = _FIRST.match(rows), _LATER.match(labels)
        if first is None or later is None or first["rows"] != later["rows"]:
            continue
        yield Finding(
            f"Labels are `{labels}` for inputs `{rows}`, and the model shifts labels by one itself: it learns to predict the"
            " token after the next.",
            place=place_of(script, pairs["labels"]),
            evidence=Evidence(Level.TEXT, {"input_ids": rows, "labels": labels}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Give the same tokens for both (`labels=ids`), or compute the loss from the logits.",
                effort=Effort.LINE,
                accuracy="The next token is learned.",
                measure="Compare the loss of a trained model on one batch: it is several times too high.",
            ),
        )
        return


def _pairs(node: ast.AST) -> dict[str, ast.expr]:
    """Keys of a dictionary, arguments of a call of a model."""
    if isinstance(node, ast.Dict):
        return {
            str(key.value): one
            for key, one in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        }
    if isinstance(node, ast.Call) and "model" in ast.unparse(node.func).lower():
        named = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        return {"input_ids": node.args[0], **named} if node.args else dict(named)
    return {}


def _given(script: Script) -> dict[str, str]:
    """Names that are given one value, also side by side (`x, y = ids[:, :-1], ids[:, 1:]`)."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        for held, value in pairs:
            if isinstance(held, ast.Name):
                found.setdefault(held.id, []).append(ast.unparse(value))
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _bare(node: ast.expr, given: dict[str, str]) -> str:
    """The slice, without what only makes a tensor of it or moves it."""
    text = ast.unparse(node)
    for _ in range(4):
        text = re.sub(r"\.(?:clone|contiguous|long|to|cuda|copy|tolist)\([^()]*\)$", "", text)
        wrapped = _WRAPS.match(text)
        text = wrapped[1] if wrapped else given.get(text, text)
        text = re.sub(r", dtype=[\w.]+$", "", text)
    return text


_TEXT = re.compile(r"^f?['\"]|\.format\(|\.strip\(\)$|['\"]\.join\(|^str\(|apply_chat_template\([^)]*tokenize=False")


def _by_characters(script: Script, project: Project) -> Iterator[Said]:
    """`n = len(prompt)`, a text, and `labels[:n] = [-100] * n`."""
    if "-100" not in script.source and "IGNORE" not in script.source:
        return
    for function in ast.walk(script.tree):
        if not isinstance(function, ast.FunctionDef) or "len(" not in ast.unparse(function):
            continue
        texts = _texts(function)
        lengths = {
            one.targets[0].id: ast.unparse(one.value)[4:-1]
            for one in ast.walk(function)
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and _is_length(one.value)
        }
        for node in ast.walk(function):
            named = _masked_by(node)
            counted = lengths.get(named, named[4:-1] if named.startswith("len(") else "")
            if counted and counted in texts and _is_assigned_once(counted, function):
                yield Finding(
                    f"`len({counted})` counts characters of a text, and labels are masked by it as by tokens: most of the"
                    " answer, or all of it, carries no loss.",
                    place=place_of(script, node),
                    evidence=Evidence(Level.TEXT, {"counted": counted, "as": "tokens"}),
                    stake=Stake(AtStake.RESULT),
                    remedy=Remedy(
                        Risk.BEHAVIOURAL,
                        f"Count tokens: `len(tokenizer({counted}, add_special_tokens=False)['input_ids'])`.",
                        effort=Effort.LINE,
                        accuracy="The whole answer is learned.",
                        measure="Print the labels of one row that are not -100.",
                    ),
                )
                return


def _texts(function: ast.FunctionDef) -> set[str]:
    """Names that hold a text, by what they are given."""
    return {
        one.targets[0].id
        for one in ast.walk(function)
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and _is_text(one.value)
    }


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_text(node.left) or _is_text(node.right)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    return isinstance(node, ast.JoinedStr) or bool(isinstance(node, ast.Call) and _TEXT.search(ast.unparse(node)))


def _is_length(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "len" and len(node.args) == 1


def _is_assigned_once(name: str, function: ast.FunctionDef) -> bool:
    given: Sequence[ast.AST] = [
        one
        for one in ast.walk(function)
        if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)
    ]
    return len(given) == 1


_MASKED = re.compile(r"(?:\[(?:-100|\w*IGNORE\w*)\]) \* (?P<times>len\(\w+\)|\w+)")
_CUT = re.compile(r"label\w*(?:\[['\"]?\w*['\"]?\])?\[:(?P<end>len\(\w+\)|\w+)\]$")


def _masked_by(node: ast.AST) -> str:
    """What counts the masked beginning: the `n` of `[-100] * n + ids[n:]`, or of `labels[:n] = ...`."""
    if not isinstance(node, ast.Assign):
        return ""
    value, target = ast.unparse(node.value), ast.unparse(node.targets[0])
    cut = _CUT.search(target)
    if cut is not None and re.search(r"-100|IGNORE", value):
        return cut["end"]
    found = _MASKED.search(value)
    return found["times"] if found is not None and "label" in target else ""
