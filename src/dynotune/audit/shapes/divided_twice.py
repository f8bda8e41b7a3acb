"""A loss is divided by the accumulation twice: by the program in two places, or by the program and by who runs its"
" loop."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.asked import version
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.loaded_data import argument
from dynotune.audit.facts.names_of_settings import ACCUMULATION
from dynotune.audit.facts.own_models import is_of_ones_own
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.scaled import Factor, factors_of
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected, imported, together
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_NO_NUMBER = re.compile(r"token|accumulated|accuracy|\bsum\(|items", re.IGNORECASE)
_BY_OTHERS = re.compile(r"accelerat|deepspeed|LightningModule|Fabric", re.IGNORECASE)
_SINCE = (4, 46)
"""transformers, from which on a `Trainer` leaves the loss alone where the model is told how many labels a step has."""


def divided_twice(script: Script, project: Project) -> Iterator[Said]:
    if "compute_loss" in script.source:
        yield from _by_a_trainer(script, project)
    if "training_step" in script.source and "ightning" in script.source:
        yield from _by_lightning(script, project)
    if "backward(" in script.source and not _BY_OTHERS.search(script.source):
        yield from _by_itself(script, project)


def is_accumulation(by: ast.expr) -> bool:
    text = ast.unparse(by)
    return bool(ACCUMULATION.search(text)) and not _NO_NUMBER.search(text)


def divisions(value: ast.expr, room: ast.AST, script: Script, near: Sequence[Script]) -> list[Factor]:
    """By the accumulation, one for each factor that nothing takes back."""
    found = [one for one in factors_of(value, room, script, near) if is_accumulation(one.by)]
    back = sum(not one.divides for one in found)
    divides = [one for one in found if one.divides]
    return divides[: len(divides) - back] if back else divides


def _by_itself(script: Script, project: Project) -> Iterator[Said]:
    """`(step_loss(model, batch, cfg) / cfg.accum).backward()`, where `step_loss` has divided by it."""
    near = imported(script, project)
    rooms = [script.tree, *(one for one in ast.walk(script.tree) if isinstance(one, ast.FunctionDef))]
    for room in rooms:
        for node in _own_calls(room):
            if not isinstance(node.func, ast.Attribute) or node.func.attr != "backward":
                continue
            loss = node.args[0] if node.args else node.func.value
            found = divisions(loss, room, script, near)
            names = {ast.unparse(one.by).rpartition(".")[2] for one in found}
            if len(found) > 1 and len(names) == 1:
                yield _finding(
                    found[0],
                    f"The loss is divided by `{ast.unparse(found[0].by)}` here, and by"
                    f" `{ast.unparse(found[1].by)}` at {_there(found[1])}: gradients are that many times too small.",
                    (place_of(found[1].script, found[1].node),),
                )
                return


def _own_calls(room: ast.AST) -> Iterator[ast.Call]:
    yield from (one for one in own_nodes(room) if isinstance(one, ast.Call))


def _there(factor: Factor) -> str:
    return f"`{factor.script.file}`, line {getattr(factor.node, 'lineno', 0)}"


def _by_lightning(script: Script, project: Project) -> Iterator[Said]:
    """`return loss / self.hparams.accum` beside `Trainer(accumulate_grad_batches=accum)`."""
    told = next(_told_lightning(script, project), None)
    if told is None or "automatic_optimization" in script.source:
        return
    for _, method in methods(script, "training_step", re.compile(r"LightningModule|\bL\.|Module$")):
        found = [
            one for value in returned(method) for one in divisions(value, method, script, imported(script, project))
        ]
        if found:
            yield _finding(
                found[0],
                "The loss is divided by the accumulation here, and Lightning divides by `accumulate_grad_batches`"
                " as well:"
                " gradients are that many times too small.",
                (told,),
            )
            return


def _told_lightning(script: Script, project: Project) -> Iterator[Place]:
    for one in connected(script, project):
        for node in ast.walk(one.tree) if "accumulate_grad_batches" in one.source else ():
            given = node.value if isinstance(node, ast.keyword) and node.arg == "accumulate_grad_batches" else None
            if given is not None and not (isinstance(given, ast.Constant) and given.value in (1, None)):
                yield place_of(one, given)
    for config in project.configs:
        for path, place in config.places.items():
            if path.rpartition(".")[2] == "accumulate_grad_batches" and config.at(path) not in (1, None):
                yield place


def methods(script: Script, name: str, bases: re.Pattern[str]) -> Iterator[tuple[ast.ClassDef, ast.FunctionDef]]:
    for owner in ast.walk(script.tree):
        if isinstance(owner, ast.ClassDef) and any(bases.search(ast.unparse(base)) for base in owner.bases):
            for one in owner.body:
                if isinstance(one, ast.FunctionDef) and one.name == name:
                    yield owner, one


def returned(function: ast.FunctionDef) -> list[ast.expr]:
    return [one.value for one in ast.walk(function) if isinstance(one, ast.Return) and one.value is not None]


OF_TRAINERS = re.compile(r"(?:^|\.)(?:Seq2Seq|SFT)?Trainer$")


def _by_a_trainer(script: Script, project: Project) -> Iterator[Said]:
    """`loss / self.args.gradient_accumulation_steps` in `compute_loss`, of a trainer that divides by it behind it."""
    for owner, method in methods(script, "compute_loss", OF_TRAINERS):
        found = [
            one for value in returned(method) for one in divisions(value, method, script, imported(script, project))
        ]
        if not found or "accepts_loss_kwargs" in script.source:
            continue
        why = _divides(owner.name, script, project)
        if why:
            yield _finding(
                found[0],
                f"The loss is divided by the accumulation here, and {why} does so as well: gradients are that many times"
                " too small.",
                (),
            )
            return


def _divides(name: str, script: Script, project: Project) -> str:
    """Why a trainer of this class divides by the accumulation itself; empty: it may not."""
    users = [one for one in together(script, project) if one.calls_of(name)]
    jobs = [job for job in project.jobs if {script.file, *(one.file for one in users)} & set(job.files)]
    pinned = project.pinned("transformers")
    if pinned is not None and pinned < _SINCE:
        return f"`Trainer` of transformers {'.'.join(map(str, pinned))}"
    if not jobs or any(_release(job) < _SINCE for job in jobs):
        return ""
    for user in users:
        near = connected(user, project)
        for call in user.calls_of(name):
            model = argument(user, call, "model", position=0)
            made = ast.unparse(model.func).rpartition(".")[2] if isinstance(model, ast.Call) else ""
            own = isinstance(model, ast.Name) and is_of_ones_own(model.id, user, near)
            classes = [
                node
                for one in near
                for node in ast.walk(one.tree)
                if isinstance(node, ast.ClassDef) and node.name == made
            ]
            if own or (len(classes) == 1 and _takes_no_more(classes[0])):
                return "`Trainer`, whose model's `forward` takes no further arguments,"
    return ""


def _takes_no_more(owner: ast.ClassDef) -> bool:
    """A module whose `forward` has no `**kwargs`: it cannot be told the number of labels."""
    forward = next((one for one in owner.body if isinstance(one, ast.FunctionDef) and one.name == "forward"), None)
    module = any(ast.unparse(base).rpartition(".")[2] == "Module" for base in owner.bases)
    return module and forward is not None and forward.args.kwarg is None


def _release(job: Job) -> tuple[int, ...]:
    return version(job, "transformers") or (9,)


def _finding(factor: Factor, message: str, also: tuple[Place, ...]) -> Finding:
    return Finding(
        message,
        place=place_of(factor.script, factor.node),
        evidence=Evidence(Level.TEXT, {"divided by": ast.unparse(factor.by)}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Take the division out here.",
            effort=Effort.LINE,
            accuracy="Gradients are the mean over the step's micro-batches; the learning rate may have been tuned"
            " to less.",
            measure="Compare the gradient's norm with one large batch.",
        ),
        also=also,
    )
