"""HST002: a layer's forward pass reads values from the device."""

import ast
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import per_step, place_of, text_at
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_READS = frozenset({"item", "tolist", "cpu", "numpy"})
_MODULES = ("Module", "Model", "Layer", "Attention", "MLP", "Block", "Norm", "ForCausalLM", "RMSNorm")


def check(script: Script, project: Project) -> Iterator[Said]:
    modules = {
        node.name: node
        for node in ast.walk(script.tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith(_MODULES) for base in node.bases)
    }
    places: dict[str, list[Place]] = {}
    for call in per_step(script, "forward"):
        holder = next((around.name for around in reversed(call.around) if around.kind == "class"), "")
        host = any(word in call.on for word in ("config", "np.", "shape", "len("))
        if holder in modules and call.name.rpartition(".")[2] in _READS and call.on and not host:
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


def _tests(node: ast.ClassDef) -> Iterator[ast.expr]:
    """`if mask.any():` and the like, at the top level of `forward`."""
    for method in node.body:
        if not isinstance(method, ast.FunctionDef) or method.name != "forward":
            continue
        for statement in method.body:
            if not isinstance(statement, ast.If):
                continue
            test = statement.test.operand if isinstance(statement.test, ast.UnaryOp) else statement.test
            if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute):
                whole = ast.unparse(test)
                reads = test.func.attr in ("any", "all") and not test.args and not whole.startswith("np.")
                if reads or whole.startswith(
                    ("torch.isnan", "torch.any(", "torch.all(", "torch.equal(", "torch.allclose(")
                ):
                    yield test


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
        detected="E0: such calls in `forward` of a class that comes from a module, under no condition.",
        proven="`dynotune profile -- python train.py` counts the waits of a step; `TORCH_LOGS=graph_breaks` names"
        " the line.",
        deliberate=("The model runs on the CPU.", "The layer is used once a run, not once a step."),
        sources=("PyTorch's performance tuning guide: avoid unnecessary CPU-GPU synchronization",),
    ),
    bad=Example(
        {"model.py": f"{_LAYER}        scale = x.abs().max().item()\n        return x / scale\n"}, says="Gate.forward"
    ),
    good=Example({"model.py": f"{_LAYER}        scale = x.abs().max()\n        return x / scale\n"}),
)
