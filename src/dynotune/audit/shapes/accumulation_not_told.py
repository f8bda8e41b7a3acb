"""A loop accumulates by Accelerate, and `Accelerator()` was not told over how many micro-batches."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.setting import Setting
from dynotune.audit.facts.steps import loops
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_NUMBER = re.compile(
    r"^-{0,2}(num_)?(gradient_accumulation(_steps)?|grad(ient)?_acc(um\w*)?(_steps)?|acc(um\w*)?_(steps?|iters?)"
    r"|accum(ulat\w+)?|gas)$",
    re.IGNORECASE,
)
_TOLD = re.compile(r"gradient_accumulation_plugin|GradientAccumulationPlugin|ACCELERATE_GRADIENT_ACCUMULATION_STEPS")
_LATER = re.compile(r"\.gradient_accumulation_steps\s*=[^=]|gradient_state")
_BY_HAND = re.compile(r"%\s*\(?\s*[\w.\"'\[\]]*accum", re.IGNORECASE)


def accumulation_not_told(script: Script, project: Project) -> Iterator[Said]:
    """The context of `accumulate` with `Accelerator()`'s own 1, beside a number of the script's that says more."""
    made = script.calls_of("Accelerator")
    if len(made) != 1 or not made[0].name.startswith("accelerate"):
        return
    call = made[0]
    if {"gradient_accumulation_steps", "gradient_accumulation_plugin"} & set(call.arguments) or any(
        name.startswith("*") for name in call.arguments
    ):
        return
    entered = [one for loop in loops(script) for one in loop.has("accumulate") if _is(one.on, call)]
    near = [code(one) for one in together(script, project)]
    if not entered or any(_TOLD.search(one) or _LATER.search(one) for one in near) or _of_the_launcher(script, project):
        return
    if any(_BY_HAND.search(one) for one in near):
        return  # counted by hand as well
    asked = _asked(script, project)
    if asked is None:
        return
    shown = asked.place.key if asked.place.file != script.file or "add_" in script.source else ""
    yield Finding(
        f"`Accelerator()` was not told of `{shown or asked.name}: {asked.value}`, and accumulates over 1:"
        " under `accumulate` each micro-batch is a step of its own.",
        place=call.place,
        evidence=Evidence(Level.RESOLVED, {asked.name: asked.value}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Give it on: `Accelerator(gradient_accumulation_steps=...)`.",
            effort=Effort.LINE,
            accuracy="Steps then hold as many rows as the number says.",
        ),
        also=(asked.place, entered[0].place),
    )


def _is(on: str, made: Call) -> bool:
    """Whether what is called is the accelerator, by what it was given to or by its name."""
    return "accelerat" in on.lower() or (bool(made.result) and on.rpartition(".")[2] == made.result.rpartition(".")[2])


def _asked(script: Script, project: Project) -> Setting | None:
    """The accumulation that a command, or else the script itself, names; None where it is 1 or not known."""
    given = [
        setting
        for launch in project.launches
        if launch.script == script.file
        for name, setting in launch.flags.items()
        if _NUMBER.match(name)
    ]
    own = [setting for name, setting in script.constants.items() if _NUMBER.match(name.replace("-", "_").lstrip("_"))]
    own += _written(script)
    if not given and not own:
        own = [
            Setting(name, value, place)
            for config in project.configs
            if config.kind == "unknown"
            for path, place in config.places.items()
            if _NUMBER.match(name := path.rpartition(".")[2]) and f".{name}" in code(script)
            for value in [config.at(path)]
        ]
    return next((one for one in given or own if isinstance(one.value, int) and one.value > 1), None)


def _written(script: Script) -> list[Setting]:
    """Numbers under such a name in dictionaries, defaults of functions and what their callers in this file give them."""
    found: list[tuple[str, ast.expr | None]] = []
    given: list[tuple[str, ast.expr | None]] = []
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Dict):
            keys = [one.value if isinstance(one, ast.Constant) else "" for one in node.keys]
            found += [(key, value) for key, value in zip(keys, node.values, strict=True) if isinstance(key, str)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in script.imports:
            given += [(one.arg or "", one.value) for one in node.keywords]
        elif isinstance(node, ast.arguments):
            last = [*node.posonlyargs, *node.args]
            by_name = zip(node.kwonlyargs, node.kw_defaults, strict=True)
            by_place = zip(reversed(last), reversed(node.defaults), strict=False)
            found += [(one.arg, value) for one, value in [*by_place, *by_name]]
    return [
        Setting(name, value.value, Place(script.file, value.lineno, key=name))
        for name, value in given + found
        if _NUMBER.match(name) and isinstance(value, ast.Constant) and isinstance(value.value, int)
    ]


def _of_the_launcher(script: Script, project: Project) -> bool:
    """`accelerate launch --gradient_accumulation_steps`, or a configuration of its own, tells it in a variable."""
    if any("gradient_accumulation_steps" in launch.launcher_flags for launch in project.launches):
        return True
    return any(
        "gradient_accumulation_steps" in path
        for config in project.configs
        if config.kind in _TELLS
        for path in config.places
    )


_TELLS = ("accelerate", "deepspeed")
