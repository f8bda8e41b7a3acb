"""OPT056: an evaluation between steps leaves the model in evaluation mode."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops
from dynotune.audit.facts.together import together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_EVAL = re.compile(r"(?<![\w.])(?:self\.)?(model|net|network|policy|student|llm|engine|model_engine)\.eval\(\s*\)")
_BACK = re.compile(r"\.train\(|was_training|\.training\s*=|set_mode\(|training_mode|unwrap|teacher\.eval")
_LOOPS = ast.For | ast.While | ast.AsyncFor
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def check(script: Script, project: Project) -> Iterator[Said]:
    inner = [loop.place for loop in loops(script) if loop.optimizer_steps]
    if not inner or ".eval(" not in "".join(one.source for one in together(script, project)):
        return
    functions = {
        node.name: (one, node)
        for one in together(script, project)
        for node in ast.walk(one.tree)
        if isinstance(node, _FUNCTIONS)
    }
    outer = _outermost(script, inner)
    if outer is None:
        return
    called = sorted({_name(node.func) for node in ast.walk(outer) if isinstance(node, ast.Call)} & set(functions))
    parts: list[tuple[Script, ast.AST]] = [(script, outer), *(functions[name] for name in called)]
    texts = [(one, _first_line(node), _source(one, node)) for one, node in parts]
    if any(_BACK.search(text) for _, _, text in texts):
        return
    for one, first, text in texts:
        if (found := _EVAL.search(text)) is not None:
            line = first + text.count("\n", 0, found.start())
            yield Finding(
                f"`{found[0]}` runs between steps, and nothing in the loop goes back to `{found[1]}.train()`: from"
                f" then on"
                " dropout is off, and gradient checkpointing too, which transformers applies while training alone.",
                place=Place(one.file, line),
                evidence=Evidence(Level.TEXT, {"switched": found[0], "back": False}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    f"Call `{found[1]}.train()` after the evaluation, or at the start of each epoch.",
                    accuracy="All steps are trained as the first ones.",
                    measure="Print `model.training` in the loop, and the memory's peak behind the first evaluation.",
                ),
                also=(inner[0],),
            )
            return


def _outermost(script: Script, inner: Sequence[Place]) -> ast.AST | None:
    """The widest loop around the steps, within one function."""
    line = inner[0].line
    around = [
        node
        for node in ast.walk(script.tree)
        if isinstance(node, _LOOPS) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    functions = [
        node
        for node in ast.walk(script.tree)
        if isinstance(node, _FUNCTIONS) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    start = max((node.lineno for node in functions), default=0)
    return min((node for node in around if node.lineno > start), key=lambda node: node.lineno, default=None)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _first_line(node: ast.AST) -> int:
    return getattr(node, "lineno", 1)


def _source(script: Script, node: ast.AST) -> str:
    return "\n".join(script.source.split("\n")[_first_line(node) - 1 : getattr(node, "end_lineno", 0)])


_LOOP = """import torch

def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        return sum(model(**batch).loss for batch in loader)

model.train()
for epoch in range(3):
    %s
    for batch in train_loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(evaluate(model, val_loader))
"""
RULE = Rule(
    code="OPT056",
    name="evaluation-mode-stays",
    summary="An evaluation between steps leaves the model in evaluation mode.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="`eval()` lasts until somebody calls `train()`.",
        why="Behind the first evaluation the model is trained without dropout, and, in transformers, without gradient"
        " checkpointing: memory jumps.",
        detected="E0: the outermost loop around the steps, or a function of the project that it calls, has"
        " `model.eval()`,"
        " and none of them has `.train()`.",
        proven="Print `model.training` at every step.",
        deliberate=("The model is to be trained in evaluation mode throughout.",),
        sources=("PyTorch's documentation of `Module.eval`", "transformers' `GradientCheckpointingLayer`"),
    ),
    bad=Example({"train.py": _LOOP % "print(epoch)"}, says="nothing in the loop goes back"),
    good=Example({"train.py": _LOOP % "model.train()"}),
)
