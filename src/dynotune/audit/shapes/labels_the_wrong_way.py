"""Labels that keep the prompt and take the answer out of the loss, or that take everything out."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.facts.training import TRAINS
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_PROMPT = re.compile(
    r"^(?:p|src|q|x|user\w*|instr\w*|ctx|context\w*|\w*(?:prompt|source|question|query|input)\w*)$", re.IGNORECASE
)
_ANSWER = re.compile(
    r"^(?:a|r|tgt|y|ans|\w*(?:answer|target|response|completion|output|chosen|reply|assistant)\w*)$", re.IGNORECASE
)
_OUT = re.compile(r"^\[(?:-100|IGNORE\w*|\w+\.IGNORE\w*|ignore_index|\w*IGNORE_INDEX)\] \* len\((.+)\)$")


def labels_the_wrong_way(project: Project) -> Iterator[Said]:
    for script in project.scripts:
        if "labels" not in script.source or "len(" not in script.source:
            continue
        if not any(TRAINS.search(one.source) for one in connected(script, project)):
            continue
        yield from _of_a_script(script)


def _of_a_script(script: Script) -> Iterator[Said]:
    for function in (one for one in ast.walk(script.tree) if isinstance(one, ast.FunctionDef)):
        for node in ast.walk(function):
            if (by_role := _of_the_user(node)) is not None and "simulat" not in script.source.lower():
                yield _by_role(script, by_role)
                return
            value = _labels(node)
            if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
                kept, out = ast.unparse(value.left), _OUT.match(ast.unparse(value.right))
                if (
                    out is not None
                    and _PROMPT.match(kept)
                    and _ANSWER.match(out[1])
                    and not (_ANSWER.match(kept) or "pad" in out[1].lower())
                ):
                    yield _turned(script, value, kept, out[1])
                    return
            elif value is not None and (out := _OUT.match(ast.unparse(value))) and _IDS.match(out[1]):
                if _filled(function, node) or not _is_the_only_one(script, function, node):
                    continue
                yield _nothing(script, value)
                return


_USER = re.compile(
    r"\b(?:role|from|speaker)['\"\]]* == ['\"](?:user|human)['\"]$|\brole['\"\]]* != ['\"](?:assistant|gpt)['\"]$"
)
_MASKED = re.compile(r"-100\b|IGNORE")


def _of_the_user(node: ast.AST) -> ast.expr | None:
    """`labels += ids if role == "user" else [-100] * len(ids)`, and the same in a branch."""
    if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.IfExp) and "label" in ast.unparse(node.target):
        test, kept, out = node.value.test, [node.value.body], [node.value.orelse]
    elif isinstance(node, ast.If) and len(node.body) == len(node.orelse) == 1:
        test, kept, out = node.test, _put(node.body[0]), _put(node.orelse[0])
    else:
        return None
    if not kept or not out or not _USER.search(ast.unparse(test)):
        return None
    return test if not _MASKED.search(ast.unparse(kept[0])) and _MASKED.search(ast.unparse(out[0])) else None


def _put(node: ast.stmt) -> list[ast.expr]:
    """What labels get more of."""
    if isinstance(node, ast.AugAssign) and "label" in ast.unparse(node.target):
        return [node.value]
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and re.match(r"\w*label\w*\.extend$", ast.unparse(call.func)):
        return call.args[:1]
    return []


def _by_role(script: Script, test: ast.expr) -> Finding:
    return _finding(
        script,
        test,
        f"Where `{ast.unparse(test)[:60]}`, tokens keep their labels, and all others are taken out of the loss, which is the"
        " wrong way round: the model learns what users say and no answer.",
        "Keep the labels of the assistant's turns.",
    )


def _labels(node: ast.AST) -> ast.expr | None:
    """What labels are given."""
    if isinstance(node, ast.Assign) and re.fullmatch(r"labels?|\w+\[['\"]labels['\"]\]", ast.unparse(node.targets[0])):
        return node.value
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "labels":
                return value
    return None


_IDS = re.compile(r"^(?:\w*(?:ids|tokens)|\w+\[['\"]input_ids['\"]\]|\w+\.input_ids)$")


_PUT_IN = re.compile(r"\[['\"]labels['\"]\]\s*(?:\[[^\]\n]*\]\s*=(?!=)|\.(?:extend|append|insert)\(|\+=)")
"""`row["labels"][start:] = ...`"""


def _is_the_only_one(script: Script, function: ast.FunctionDef, node: ast.AST) -> bool:
    """Every row gets these: no other statement of the file gives labels, which may be those of answers, none puts anything
    into a row's, and this one stands under no condition."""
    if _PUT_IN.search(code(script)):
        return False
    given = [one for one in ast.walk(script.tree) if _labels(one) is not None]
    passed_on = [one for one in given if isinstance(_labels(one), ast.Name)]
    branches = [one for one in ast.walk(function) if isinstance(one, ast.If | ast.Try)]
    return len(given) - len(passed_on) == 1 and not any(node in ast.walk(one) for one in branches)


def _filled(function: ast.FunctionDef, node: ast.AST) -> bool:
    """Something is put into the labels afterwards, or they are handed on to what may."""
    holder = next((one for one in ast.walk(function) if isinstance(one, ast.Assign) and node in (one, one.value)), None)
    target = holder.targets[0] if holder is not None else None
    row = ast.unparse(target.value if isinstance(target, ast.Subscript) else target) if target is not None else ""
    if any(_hands_on(one, row) for one in ast.walk(function)):
        return True
    name = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""
    if not name:
        return False
    for one in ast.walk(function):
        text = ast.unparse(one) if isinstance(one, ast.Assign | ast.AugAssign | ast.Call | ast.Delete) else ""
        if one is not node and (
            (isinstance(one, ast.Assign | ast.AugAssign) and re.match(rf"{re.escape(name)}(?:\[| [-+|]?= )", text))
            or (isinstance(one, ast.Call) and re.search(rf"\b{re.escape(name)}\b", text) and "len(" not in text)
        ):
            return True
    return False


def _hands_on(node: ast.AST, row: str) -> bool:
    """`fill(row, spans)`: a function by its name alone, whose result nobody takes, may put labels into what it gets."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id == "print":
        return False
    return any(isinstance(one, ast.Name) and one.id == row for one in call.args)


def _turned(script: Script, value: ast.expr, kept: str, out: str) -> Finding:
    return _finding(
        script,
        value,
        f"Labels are `{ast.unparse(value)}`: they keep `{kept}` and take `{out}` out of the loss, which is the wrong way"
        " round; the model learns the prompts and no answer.",
        "Write `[-100] * len(prompt) + answer`.",
    )


def _nothing(script: Script, value: ast.expr) -> Finding:
    return _finding(
        script,
        value,
        f"Labels are `{ast.unparse(value)}`, and nothing is put into them: every token is out of the loss, which is no"
        " number, and nothing is learned.",
        "Give the answer's tokens their ids.",
    )


def _finding(script: Script, value: ast.expr, message: str, text: str) -> Finding:
    return Finding(
        message,
        place=place_of(script, value),
        evidence=Evidence(Level.TEXT, {"labels": ast.unparse(value)[:200]}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            text,
            effort=Effort.LINE,
            accuracy="Answers are learned.",
            measure="Print the labels of one row that are not -100, decoded.",
        ),
    )
