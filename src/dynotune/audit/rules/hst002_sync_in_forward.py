"""HST002: a layer's forward pass reads values from the device."""

import ast
import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import place_of, text_at
from dynotune.audit.facts.together import imported
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_READS = frozenset({"item", "tolist", "cpu", "numpy"})
_HOST = re.compile(r"config|\bnp\.|shape|len\(|\.size\(")
_MODULES = ("Module", "Model", "Layer", "Attention", "MLP", "Block", "Norm", "ForCausalLM", "RMSNorm")


def check(script: Script, project: Project) -> Iterator[Said]:
    if "def forward" not in script.source:
        return
    modules = _modules(script, project)
    places: dict[str, list[Place]] = {}
    for call in script.calls:
        holder = next((around.name for around in reversed(call.around) if around.kind == "class"), "")
        forward = call.loop is not None and text_at(script, call.loop).startswith("def forward(")
        if (call.each_step or _while_training(call)) and holder in modules and forward and _reads(script, call):
            places.setdefault(holder, []).append(call.place)
    for name, node in modules.items():
        for test in _tests(node):
            places.setdefault(name, []).append(place_of(script, test))
    for name, found in places.items():
        first, *more = sorted(found)
        yield Finding(
            f"`{name}.forward` reads from the device (`{text_at(script, first)}`): the host waits there in every"
            f" layer that"
            " is one, at every step, and the compiler breaks its graph.",
            place=first,
            evidence=Evidence(Level.TEXT, {"class": name, "reads": len(found)}),
            stake=Stake(AtStake.TIME, 0.0, 0.3, "a wait for each layer; the more, the smaller the model"),
            remedy=Remedy(
                Risk.SAFE,
                "Decide on the device (`torch.where`, masked arithmetic), or once before the model and pass the"
                " answer in.",
                effort=Effort.HOURS,
                measure="dynotune profile -- python train.py",
            ),
            also=tuple(more),
        )


def _while_training(call: Call) -> bool:
    """Under no condition but that of a module in training, which holds at every step."""
    tests = [around.name for around in call.around if around.kind == "if"]
    return call.in_training_loop and bool(tests) and all(one == "self.training" for one in tests)


def _modules(script: Script, project: Project) -> dict[str, ast.ClassDef]:
    """The file's classes that come from a module of PyTorch, those of other files between them included."""
    known = {
        name
        for one in imported(script, project)
        for name in _classes(one, frozenset())
        if any(name == dotted.rpartition(".")[2] for dotted in script.imports.values())
    }
    return _classes(script, known)


def _classes(script: Script, known: AbstractSet[str]) -> dict[str, ast.ClassDef]:
    found: dict[str, ast.ClassDef] = {}
    for node in ast.walk(script.tree):
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            name = ast.unparse(base)
            first, _, rest = name.partition(".")
            dotted = f"{script.imports.get(first, first)}.{rest}"
            if name.endswith(_MODULES) or name in found or name in known or dotted.startswith(("torch.nn.", "nn.")):
                assert isinstance(node, ast.ClassDef)
                found[node.name] = node
    return found


_REDUCED = re.compile(r"\.(max|min|amax|amin|mean|sum|norm|std|any|all|argmax|argmin|nonzero)\(")


def _reads(script: Script, call: Call) -> bool:
    """A read of a tensor: `x.max().item()`, `float(x.abs().max())`."""
    if call.name in ("float", "int", "bool") and not call.on:
        inner = text_at(script, call.place).partition("(")[2]
        if call.name != "bool" and (own := re.fullmatch(r"self\.(\w+)\)", inner)):
            return _is_tensor(own[1], script)
        if (named := re.fullmatch(r"(\w+)\)", inner)) is not None:
            return _made_on_the_device(named[1], script, call)
        return bool(_REDUCED.search(inner) or _ON_THE_DEVICE.search(inner)) and not _HOST.search(inner)
    if call.name == "torch.cuda.synchronize":
        return True
    if call.name == "torch.repeat_interleave" or call.name.rpartition(".")[2] == "repeat_interleave":
        return _counts_of_a_tensor(script, call)
    if call.name == "print" and not call.on:
        return bool(_SHOWN.search(text_at(script, call.place))) and not _HOST.search(text_at(script, call.place))
    if call.name in ("torch.unique", "torch.unique_consecutive", "torch.masked_select"):
        return True
    if call.name.rpartition(".")[2] == "nonzero" or (call.name == "torch.where" and "1" not in call.arguments):
        return "input" not in call.arguments and not _HOST.search(call.on)  # how many there are, the host must know
    return call.name.rpartition(".")[2] in _READS and bool(call.on) and not _HOST.search(call.on)


_ON_THE_DEVICE = re.compile(r"\btorch\.\w+\(.*\bdevice=(?![\"']cpu|torch\.device\([\"']cpu)")
"""A tensor that is made there."""


def _made_on_the_device(name: str, script: Script, call: Call) -> bool:
    """By what the function assigns it from."""
    lines = script.source.split("\n")[call.loop.line - 1 : call.place.line] if call.loop is not None else []
    made = [found[1] for line in lines if (found := re.match(rf"\s*{re.escape(name)} = (.*)$", line)) is not None]
    last = made[-1] if made else ""
    host = re.search(r"\.(?:item|tolist|cpu)\(|\bint\(|\bfloat\(|\bmath\.", last) or _HOST.search(last)
    return not host and bool(re.search(rf"{_REDUCED.pattern}[^()]*\)$", last) or _ON_THE_DEVICE.search(last))


def _counts_of_a_tensor(script: Script, call: Call) -> bool:
    """How many rows there will be, the host must know, unless it is told."""
    counts = call.arguments.get("repeats") or call.arguments.get("1" if call.name.startswith("torch.") else "0")
    if counts is None or "output_size" in call.arguments or isinstance(counts.value, int):
        return False
    text = text_at(script, call.place)
    return bool(re.search(r"(?:counts|lengths|lens|repeats|sizes|durations)\b", text.partition("(")[2]))


_SHOWN = re.compile(r"\b[a-z]\w*(?:\.\w+\(\))*\.(?:max|min|amax|amin|mean|sum|norm|std)\(\)")


def _is_tensor(name: str, script: Script) -> bool:
    """A parameter or a buffer of the module's own, of one number."""
    word = re.escape(name)
    parameter = rf"self\.{word}\s*=\s*(?:(?:torch\.)?nn\.)?Parameter\("
    made = rf"{parameter}|register_buffer\(\s*['\"]{word}['\"]"
    return bool(re.search(made, script.source))


def _tests(node: ast.ClassDef) -> Iterator[ast.expr]:
    """`if mask.any():` and the like, at the top level of `forward` and of methods that it always calls."""
    methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
    run = {"forward"} & methods.keys()
    waiting = list(run)
    for name in waiting:
        new = ({*_calls_always(methods[name])} & methods.keys()) - run
        run |= new
        waiting += new
    for method in node.body:
        if not isinstance(method, ast.FunctionDef) or method.name not in run:
            continue
        for statement in _always(method.body):
            whole_test = _behind_its_being_there(statement.test)
            if isinstance(whole_test, ast.Compare) and _counted(whole_test):
                yield whole_test
            test = whole_test.operand if isinstance(whole_test, ast.UnaryOp) else whole_test
            if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute):
                whole = ast.unparse(test)
                reads = test.func.attr in ("any", "all") and not test.args and not whole.startswith("np.")
                if reads or whole.startswith(
                    ("torch.isnan", "torch.any(", "torch.all(", "torch.equal(", "torch.allclose(")
                ):
                    yield test


def _behind_its_being_there(test: ast.expr) -> ast.expr:
    """`mask.all()` of `mask is not None and mask.all()`: asked wherever there is a mask."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and len(test.values) == 2:
        first, second = test.values
        name = re.fullmatch(r"(\w+) is not None|self\.training", ast.unparse(first))
        if name is not None and (name[1] is None or re.search(rf"\b{name[1]}\b", ast.unparse(second))):
            return second
    return test


def _calls_always(method: ast.FunctionDef) -> Iterator[str]:
    """Methods of its own that it calls under no condition."""
    for statement in method.body:
        if isinstance(statement, ast.Assign | ast.Expr | ast.Return | ast.AugAssign) and statement.value is not None:
            for one in ast.walk(statement.value):
                if isinstance(one, ast.Call) and ast.unparse(one.func).startswith("self."):
                    yield ast.unparse(one.func).removeprefix("self.")


_TRAINING = re.compile(r"self\.training( and .*)?")


def _always(body: Sequence[ast.stmt]) -> Iterator[ast.If | ast.Assert]:
    """Branches that every training step comes to: under no other, or under `if self.training:` alone."""
    for statement in body:
        if isinstance(statement, ast.Assert):
            yield statement
        elif isinstance(statement, ast.If):
            yield statement
            if _TRAINING.fullmatch(ast.unparse(statement.test)):
                yield from _always(statement.body)
        elif isinstance(statement, ast.With | ast.For):  # a loop over experts or blocks
            yield from _always(statement.body)


def _counted(test: ast.Compare) -> bool:
    """`mask.sum() == 0`."""
    left = ast.unparse(test.left)
    numbers = all(isinstance(one, ast.Constant) and isinstance(one.value, int | float) for one in test.comparators)
    return numbers and bool(re.search(r"\.(max|min|sum|mean|norm)\([^()]*\)$", left)) and not _HOST.search(left)


_LAYER = """import torch
from torch import nn


class Gate(nn.Module):
    def forward(self, x, mask):
"""
RULE = Rule(
    code="HST002",
    name="sync-in-forward",
    summary="The forward pass of a layer reads values from the device.",
    group=Group.PERFORMANCE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="`.item()`, `.cpu()`, `.tolist()` or `if mask.any():` in `forward` need the value of a tensor on the"
        " host.",
        why="The host cannot run ahead of the device any more: every kernel after it starts late. Under"
        " `torch.compile` the"
        " graph breaks in two there.",
        detected="E0: such calls, `nonzero` and `torch.where(condition)` among them, in `forward` of a class that comes"
        " from a module, and in what it always calls.",
        proven="`dynotune profile -- python train.py` counts the waits of a step; `TORCH_LOGS=graph_breaks` names"
        " the line.",
        deliberate=("The model runs on the CPU.", "The layer is used once a run, not once a step."),
        sources=("PyTorch's performance tuning guide: avoid unnecessary CPU-GPU synchronization",),
    ),
    bad=Example(
        {"model.py": f"{_LAYER}        scale = x.abs().max().item()\n        return x / scale\n"}, says="Gate.forward"
    ),
    good=Example({"model.py": f"{_LAYER}        scale = x.abs().max()\n        return x / scale\n"}),
    also_bad=(
        Example(
            {
                "model.py": f"{_LAYER}        if self.training:\n            if torch.isnan(x).any():\n"
                "                raise FloatingPointError\n        return x\n"
            },
            says="torch.isnan(x).any()",
        ),
        Example(
            {
                "model.py": f"{_LAYER}        with torch.no_grad():\n            if not mask.all():\n"
                "                x = x * 2\n        return x\n"
            },
            says="mask.all()",
        ),
    ),
)
