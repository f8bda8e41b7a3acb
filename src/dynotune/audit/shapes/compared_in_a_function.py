"""A training loop gives a model's logits and a batch's labels, as they stand, to a function that compares them."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.copied_input import given_in
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import FUNCTIONS, own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import connected

CAUSAL = re.compile(r"ForCausalLM\b|LMHeadModel\b")
OTHERWISE = re.compile(r"Seq2Seq(LM|Trainer)|MaskedLM|TokenClassification|SequenceClassification|num_labels|mlm=True")
_OF_ROWS = re.compile(r"labels|input_ids|targets?\b")
SHIFTS = re.compile(r"(\[|, )1:|:-1\b|shift|\broll\(|\.narrow\(|\bpad\(\w*labels", re.IGNORECASE)
_OF_LOSSES = re.compile(r"logits|log_softmax|cross_entropy|kl_div|nll_loss", re.IGNORECASE)
_DEFINED = (ast.FunctionDef, ast.ClassDef)
_STEPS = frozenset({"compute_loss", "training_step"})
_KEEPS = frozenset(
    {
        *("view", "reshape", "flatten", "transpose", "permute", "contiguous", "float", "double", "to", "type", "clone"),
        *("long", "cuda", "detach", "type_as"),
    }
)
"""Methods that leave each token where it is."""

_DEEP = 4

Kinds = Mapping[str, str]
"""`logits` or `labels`, by the names of a function that hold all of them."""

Functions = Mapping[str, tuple[Script, ast.FunctionDef]]


def compared_in_a_function(script: Script, project: Project) -> Iterator[tuple[Script, ast.Call]]:
    """The comparison, and the file that it stands in."""
    if "logits" not in script.source or not re.search(r"\.backward\(|compute_loss|training_step", script.source):
        return
    program = connected(script, project)
    if not any("cross_entropy" in one.source or "CrossEntropyLoss" in one.source for one in program):
        return
    if not any(CAUSAL.search(one.source) for one in program) or any(OTHERWISE.search(one.source) for one in program):
        return
    if any(moves_rows(one, losses=False) for one in project.scripts):
        return
    functions = _functions(program)
    for room in (script.tree, *(one for one in ast.walk(script.tree) if isinstance(one, FUNCTIONS))):
        steps = getattr(room, "name", "") in _STEPS
        nodes = list(own_nodes(room))
        if not steps and not any(isinstance(one, ast.Call) and _is_backward(one) for one in nodes):
            continue
        held = _Held(room, {})
        for call in nodes:
            taker = functions.get(_last(call)) if isinstance(call, ast.Call) else None
            if taker is not None and isinstance(call, ast.Call):
                found = _compared(taker, held.handed(call, taker[1]), functions, _DEEP)
                if found is not None:
                    yield found
                    return


def _is_backward(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("backward", "manual_backward")


def _last(call: ast.Call) -> str:
    func = call.func
    return func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""


def _functions(program: Sequence[Script]) -> Functions:
    """By names that mean no other."""
    found: dict[str, list[tuple[Script, ast.FunctionDef]]] = {}
    for one in program:
        for node in ast.walk(one.tree):
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, []).append((one, node))
    return {name: nodes[0] for name, nodes in found.items() if len(nodes) == 1}


def moves_rows(script: Script, *, losses: bool = True) -> bool:
    """A function, or code outside of any, that has to do with labels moves rows by one. losses: also one that works on
    logits, which may move its own alone."""
    if not _OF_ROWS.search(script.source) or not SHIFTS.search(script.source):
        return False
    texts = [ast.unparse(node) for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef)]
    if not losses:
        texts = [text for text in texts if not _OF_LOSSES.search(text)]
    texts.append("\n".join(ast.unparse(node) for node in script.tree.body if not isinstance(node, _DEFINED)))
    return any(_OF_ROWS.search(text) and SHIFTS.search(text) for text in texts)


class _Held:
    """What the names of a function hold, where each is given once."""

    def __init__(self, room: ast.AST, kinds: Kinds) -> None:
        stored = [one.id for one in own_nodes(room) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)]
        self.given = {
            name: values[0] for name, values in given_in(room).items() if stored.count(name) == len(values) == 1
        }
        self.kinds = {name: kind for name, kind in kinds.items() if name not in stored}

    def kind(self, node: ast.expr, deep: int = 8) -> str:
        if not deep:
            return ""
        match node:
            case ast.Name(id=name):
                known = self.kinds.get(name)
                return known or (self.kind(self.given[name], deep - 1) if name in self.given else "")
            case ast.Attribute(attr="logits") | ast.Subscript(slice=ast.Constant(value="logits")):
                return "logits"
            case ast.Attribute(attr="labels") | ast.Subscript(slice=ast.Constant(value="labels" | "input_ids")):
                return "labels"
            case ast.Call(func=ast.Attribute(attr="pop" | "get"), args=[ast.Constant(value="labels"), *_]):
                return "labels"
            case ast.Call(func=ast.Attribute(attr=method, value=of)) if method in _KEEPS:
                return self.kind(of, deep - 1)
            case ast.BinOp(op=ast.Div() | ast.Mult(), left=left):
                return self.kind(left, deep - 1)
        return ""

    def handed(self, call: ast.Call, taker: ast.FunctionDef) -> dict[str, str]:
        """What the parameters of a function hold, by this call."""
        takes = [one.arg for one in (*taker.args.posonlyargs, *taker.args.args)]
        takes = takes[1:] if takes[:1] == ["self"] else takes
        pairs = [*zip(takes, call.args, strict=False), *((one.arg or "", one.value) for one in call.keywords)]
        return {name: kind for name, value in pairs if (kind := self.kind(value))}


def _compared(
    taken: tuple[Script, ast.FunctionDef], kinds: Kinds, functions: Functions, deep: int
) -> tuple[Script, ast.Call] | None:
    if not deep or set(kinds.values()) != {"logits", "labels"}:
        return None
    script, function = taken
    held = _Held(function, kinds)
    for call in own_nodes(function):
        if not isinstance(call, ast.Call):
            continue
        if _is_loss(call, function):
            by_name = {one.arg: one.value for one in call.keywords}
            first, second = [*call.args, *(by_name[one] for one in ("input", "target") if one in by_name), None, None][
                :2
            ]
            if (
                first is not None
                and second is not None
                and (held.kind(first), held.kind(second)) == ("logits", "labels")
            ):
                return script, call
        elif (taker := functions.get(_last(call))) is not None and taker[1] is not function:
            found = _compared(taker, held.handed(call, taker[1]), functions, deep - 1)
            if found is not None:
                return found
    return None


def _is_loss(call: ast.Call, function: ast.FunctionDef) -> bool:
    """`F.cross_entropy(...)`, `nn.CrossEntropyLoss()(...)`, or a name that the function gives such a loss."""
    if _last(call) == "cross_entropy":
        return True
    if isinstance(call.func, ast.Call):
        return _last(call.func) == "CrossEntropyLoss"
    made = given_in(function).get(call.func.id, ()) if isinstance(call.func, ast.Name) else ()
    return len(made) == 1 and isinstance(made[0], ast.Call) and _last(made[0]) == "CrossEntropyLoss"
