"""MEM052: a model that is not trained runs with its graph kept."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, per_step, text_at
from dynotune.audit.facts.together import connected, leads_out
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_FROZEN = r"teacher\w*|ref(erence)?(_model|_policy)?|\w+_ref|frozen_\w+|\w*_teacher"


def check(script: Script, project: Project) -> Iterator[Said]:
    optimized = " ".join(
        line
        for line in script.source.split("\n")
        if re.search(r"\.(named_)?parameters\(\)", line) and "requires_grad" not in line
    )
    yield from _in_a_trainer(script, project)
    yield from _by_a_helper(script, project)
    for loop in loops(script):
        for call in loop.calls:
            name = call.name
            if call.on or not call.each_step or not re.fullmatch(_FROZEN, name) or _has_no_graph(script, call, name):
                continue
            if re.search(rf"\b{re.escape(name)}\.(named_)?parameters\(", optimized):
                continue
            yield Finding(
                f"`{name}(...)` runs with gradients on, and no optimizer trains it: its whole graph is kept,"
                f" and `backward()`"
                " computes gradients of all its weights.",
                place=call.place,
                evidence=Evidence(Level.TEXT, {"model": name}),
                stake=Stake(
                    AtStake.MEMORY, source="the activations of its forward pass and a gradient for each weight"
                ),
                remedy=Remedy(
                    Risk.SAFE,
                    f"Run it under `with torch.no_grad():`, or `{name}.requires_grad_(False)` after loading.",
                    measure="dynotune profile -- python train.py",
                ),
            )
            return


def _in_a_trainer(script: Script, project: Project) -> Iterator[Said]:
    """A model that a Trainer's own loss runs beside the one that it is given."""
    for call in per_step(script, "compute_loss", "training_step", "get_batch_loss_metrics"):
        name = call.name.rpartition(".")[2]
        if call.on != "self" or not re.fullmatch(_FROZEN, name) or _has_no_graph(script, call, f"self.{name}"):
            continue
        stays = re.compile(
            rf"\b\w*{name}\w*\b[^\n]{{0,80}}\.requires_grad_\(\s*False|in [\w.]*{name}\w*\.parameters\(\)|freeze"
        )
        if any(stays.search(one.source) for one in connected(script, project)) or leads_out([script], project):
            continue
        yield Finding(
            f"`self.{name}(...)` runs with gradients on at every step, and nothing freezes it:"
            " its whole graph is kept, and `backward()` computes gradients of all its weights.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"model": f"self.{name}"}),
            stake=Stake(AtStake.MEMORY, source="the activations of its forward pass and a gradient for each weight"),
            remedy=Remedy(
                Risk.SAFE,
                f"Run it under `with torch.no_grad():`, or `self.{name}.requires_grad_(False)` where it is set.",
                measure="dynotune profile -- python train.py",
            ),
        )
        return


_GIVEN = re.compile(r"[\w.]+\(\s*(?:model=)?(\w+)\s*,")


def _by_a_helper(script: Script, project: Project) -> Iterator[Said]:
    """`sequence_logps(reference, batch)` in a loop, by a function that keeps the graph."""
    near = connected(script, project)
    for loop in loops(script):
        for call in loop.calls:
            given = _GIVEN.match(text_at(script, call.place))
            if call.on or not call.each_step or given is None or not re.fullmatch(_FROZEN, given[1]):
                continue
            name, helper = given[1], call.name.rpartition(".")[2]
            written = [node for one in near for node in ast.walk(one.tree) if _is_function(node, helper)]
            if len(written) != 1 or re.search(r"no_grad|inference_mode|detach", ast.unparse(written[0])):
                continue
            parameters = any(re.search(rf"\b{name}\.(named_)?parameters\(", one.source) for one in near)
            made = re.search(rf"\b{name} = [^\n]*(?:from_pretrained|deepcopy)\(", script.source)
            behind = re.search(rf"\b{re.escape(call.result)}\.detach\(", script.source) if call.result else None
            if not made or parameters or behind or _has_no_graph(script, call, name):
                continue
            yield Finding(
                f"`{helper}({name}, ...)` runs `{name}` with gradients on, and no optimizer trains it: its whole graph is"
                " kept, and `backward()` computes gradients of all its weights.",
                place=call.place,
                evidence=Evidence(Level.TEXT, {"model": name}),
                stake=Stake(
                    AtStake.MEMORY, source="the activations of its forward pass and a gradient for each weight"
                ),
                remedy=Remedy(
                    Risk.SAFE,
                    f"Call it under `with torch.no_grad():`, or `{name}.requires_grad_(False)` after loading.",
                    measure="dynotune profile -- python train.py",
                ),
            )
            return


def _is_function(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _has_no_graph(script: Script, call: Call, name: str) -> bool:
    held = " ".join(around.name for around in call.around if around.kind == "with")
    if re.search(r"no_grad|inference_mode|set_grad_enabled\(False", held):
        return True
    own = re.escape(name)
    asked = rf"\b{own}(\.\w+){{0,8}}\.requires_grad_\(\s*False"
    each = rf"in {own}\.parameters\(\)\s{{0,8}}:\s{{0,80}}\w+\.requires_grad"
    made = rf"{own}\s{{0,8}}=\s{{0,8}}\w{{0,80}}(freeze|frozen)\w{{0,80}}\("
    if any(re.search(one, script.source) for one in (asked, each, made)):
        return True
    return _made_without(script, name) or _under_no_grad(script, call)


def _made_without(script: Script, name: str) -> bool:
    """What it is given asks for none, at the end of a chain or by TRL's copy for a reference."""
    return any(
        re.search(r"\.requires_grad_\((requires_grad=)?False\)|\bcreate_reference_model\(", ast.unparse(node.value))
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == name for one in node.targets)
    )


def _under_no_grad(script: Script, call: Call) -> bool:
    """It stands in a function that is decorated so."""
    return any(
        re.search(r"no_grad|inference_mode", ast.unparse(decorator))
        for node in ast.walk(script.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= call.place.line <= (node.end_lineno or 0)
        for decorator in node.decorator_list
    )


_LOOP = """import torch
from transformers import AutoModelForCausalLM

teacher = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B").cuda().eval()
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-5, fused=True)
for batch in train_loader:
    {}
        wanted = teacher(**batch).logits
    loss = distance(student(**batch).logits, wanted)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
RULE = Rule(
    code="MEM052",
    name="teacher-with-gradients",
    summary="A teacher or reference runs with its graph kept.",
    group=Group.MEMORY,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="`eval()` turns dropout off, not gradients. A model that is only asked keeps every activation for"
        " a backward pass,"
        " and gets gradients that nobody reads, unless it runs under `no_grad` or its weights want none.",
        why="A teacher of 7B costs its activations and 14 GB of gradients, and twice its forward pass in the backward one.",
        detected="E0: a model called teacher or reference is called in a training loop under no `no_grad`; its"
        " weights go to no"
        " optimizer, and nothing sets `requires_grad_(False)`.",
        proven="`teacher.lm_head.weight.grad` is None after a step.",
        deliberate=("It is trained by another file.",),
        sources=("PyTorch's notes on autograd: evaluation mode and no-grad mode",),
    ),
    bad=Example({"train.py": _LOOP.format("with torch.enable_grad():")}, says="gradients on"),
    good=Example({"train.py": _LOOP.format("with torch.no_grad():")}),
)
