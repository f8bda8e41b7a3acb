"""Weights alone are loaded by a call that was told to run whatever the file's pickle holds."""

import ast
from collections.abc import Iterator

from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_TAKES = {"load_state_dict": 0, "set_peft_model_state_dict": 1, "set_model_state_dict": 1}
"""Which of its arguments are the weights."""


def pickle_of_weights(script: Script) -> Iterator[Said]:
    """`model.load_state_dict(torch.load(path, weights_only=False))`. A file that is taken apart may hold more than tensors,
    and one that the script writes itself is its own."""
    if "weights_only" not in script.source or "state_dict" not in script.source:
        return
    written = {
        ast.unparse(node.args[1])
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.save" and len(node.args) > 1
    }
    parts = [node for node in ast.walk(script.tree) if isinstance(node, ast.Assign)]
    loaded = {
        node.targets[0].id: node.value
        for node in parts
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and _loads(node.value)
    }
    for node in ast.walk(script.tree):
        at = _TAKES.get(ast.unparse(node.func).rpartition(".")[2]) if isinstance(node, ast.Call) else None
        if not isinstance(node, ast.Call) or at is None or len(node.args) <= at:
            continue
        given = node.args[at]
        call = loaded.get(given.id) if isinstance(given, ast.Name) else given if _loads(given) else None
        if not isinstance(call, ast.Call) or "optim" in ast.unparse(node.func) or "sched" in ast.unparse(node.func):
            continue
        if isinstance(given, ast.Name) and _is_taken_apart(given.id, script.tree):
            continue
        path = ast.unparse(call.args[0]) if call.args else ""
        if path in written:
            continue
        yield Finding(
            f"`weights_only=False` lets `torch.load` run whatever code the pickle at `{path}` holds, with the rights of who"
            " trains, and weights alone are taken from it, which load without.",
            place=place_of(script, call),
            evidence=Evidence(Level.TEXT, {"weights_only": False, "loaded into": ast.unparse(node.func)}),
            stake=Stake(AtStake.LOST, source="whoever can write there has the rights of who trains"),
            remedy=Remedy(
                Risk.OPERATIONAL,
                "Set `weights_only=True` (the default since PyTorch 2.6), or keep the weights as safetensors.",
                breaks="A file that holds more than tensors does not load: write its weights anew.",
            ),
        )
        return


def _loads(node: ast.AST) -> bool:
    """`torch.load(path, weights_only=False)`."""
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == "torch.load"
        and any(
            word.arg == "weights_only" and isinstance(word.value, ast.Constant) and word.value.value is False
            for word in node.keywords
        )
    )


def _is_taken_apart(name: str, tree: ast.AST) -> bool:
    """`state["model"]`, `state.pop(...)`, `"model" in state`: it holds more than weights, or its own code knows better."""
    for node in ast.walk(tree):
        held = node.value if isinstance(node, ast.Subscript | ast.Attribute) else None
        if isinstance(held, ast.Name) and held.id == name:
            return True
        if isinstance(node, ast.Compare) and any(
            isinstance(one, ast.Name) and one.id == name for one in node.comparators
        ):
            return True
    return False
