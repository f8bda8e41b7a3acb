"""A trainer's arguments name a checkpoint to go on from, and `train()` is called without it; or a loop that is to go on
takes the weights alone from where it stopped."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import place_of, takes_steps
from dynotune.audit.facts.together import code, connected, leads_out
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_KEY = "resume_from_checkpoint"


def resumed_in_vain(project: Project) -> Iterator[Said]:
    said: set[Place] = set()
    for job in project.jobs:
        for finding in _of_a_trainer(job, project):
            if finding.place not in said:
                said.add(finding.place)
                yield finding
    for script in project.scripts:
        yield from _of_a_loop(script, project)


def _of_a_trainer(job: Job, project: Project) -> Iterator[Finding]:
    """`TrainingArguments.resume_from_checkpoint` is for scripts: `Trainer` looks at what `train` is given alone."""
    if job.trainer not in (Trainer.TRANSFORMERS, Trainer.TRL):
        return
    asked = _asked(job, project)
    scripts = [one for one in project.scripts if one.file in job.files]
    calls = [(one, call) for one in scripts for call in one.calls_of("train") if _is_a_trainers(call)]
    if asked is None or not calls or any(call.arguments for _, call in calls):
        return
    if any("_load_from_checkpoint" in one.source or "def train(" in one.source for one in scripts):
        return
    _, call = calls[0]
    yield Finding(
        f"`{_KEY}` is given, and `{call.on or 'trainer'}.train()` is called without it: `Trainer` does not look at that"
        " argument itself, and training begins at the first row.",
        place=call.place,
        evidence=Evidence(Level.RESOLVED, {_KEY: "given", "train": "()"}),
        stake=Stake(AtStake.LOST),
        remedy=Remedy(
            Risk.OPERATIONAL,
            f"Hand it over: `{call.on or 'trainer'}.train({_KEY}=args.{_KEY})`.",
            effort=Effort.LINE,
            measure="Kill it after a save and start it again: the step goes on.",
        ),
        also=(asked,),
    )


def _is_a_trainers(call: Call) -> bool:
    return call.name.endswith("Trainer.train") or "trainer" in call.on.lower() or "Trainer(" in call.on


def _asked(job: Job, project: Project) -> Place | None:
    """Where a command of the job, its configuration or its arguments name a checkpoint, or ask for the last one."""
    for launch in project.launches:
        flag = launch.flags.get(_KEY)
        if (
            launch.script in job.files
            and launch.script
            and flag is not None
            and flag.value not in (False, None, "", "False")
        ):
            return flag.place if flag.place.line else launch.place
    setting = job.setting(_KEY)
    if setting is not None and job.is_given(_KEY) and setting.is_known and setting.value and not setting.others:
        return job.place(_KEY)
    return None


_RESUMES = re.compile(r"\bresum\w*|\bcontinue_from\b|\brestart_from\b|\bgo_on\b", re.IGNORECASE)
_OPTIMIZERS = re.compile(r"opt|adam", re.IGNORECASE)
_OTHERS_STATE = re.compile(
    r"load_state\(|load_checkpoint\(|dcp\.load|set_optimizer_state_dict|set_state_dict|optimizer_state|checkpointer"
    r"|for [\w, ()]+ in[^\n]*\n?[^\n]*\.load_state_dict\("
)


def _of_a_loop(script: Script, project: Project) -> Iterator[Said]:
    """`if args.resume: model.load_state_dict(torch.load(path)["model"])`, and an optimizer that begins anew."""
    if not takes_steps(script):
        return
    near = connected(script, project)
    text = "\n".join(code(one) for one in near)
    if not _RESUMES.search(text) or leads_out(near, project) or _OTHERS_STATE.search(text):
        return
    loads = [(one, node, on) for one in near for node, on in _loads(one)]
    if not loads or any(_OPTIMIZERS.search(on) or _may_be_any(one, node, on) for one, node, on in loads):
        return
    made = {call.result.rpartition(".")[2] for call in script.calls if re.match(r"torch\.optim\.\w+$", call.name)} - {
        ""
    }
    if not made or any(on.rpartition(".")[2] in made for _, _, on in loads):
        return
    asked = next(((one, node) for one in near for node in _asking(one, loads)), None)
    saved = next((call.place for one in near for call in one.calls_of("save") if call.name == "torch.save"), None)
    if asked is None or saved is None or "state_dict()" not in text:
        return
    of, load, _ = loads[0]
    yield Finding(
        f"A run that is resumed gets its weights back (`{ast.unparse(load.func)}`), and nothing loads the"
        f" optimizer's state,"
        " the schedule or the step: moments and learning rate begin anew, and rows are seen again.",
        place=place_of(of, load),
        evidence=Evidence(Level.TEXT, {"loaded": ast.unparse(load.func), "optimizer": None}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.OPERATIONAL,
            "Save and load the state of optimizer and schedule and the step beside the weights, and begin the loop"
            " there.",
            effort=Effort.MINUTES,
            measure="Kill it and start it again; compare the next losses.",
        ),
        also=(saved, place_of(*asked)),
    )


def _may_be_any(script: Script, load: ast.Call, on: str) -> bool:
    """Whether what takes the state is named by a loop over several, or by a function's parameter for anything."""
    if not on.isidentifier():
        return False
    for node in ast.walk(script.tree):
        if isinstance(node, ast.For | ast.comprehension):
            if any(isinstance(one, ast.Name) and one.id == on for one in ast.walk(node.target)):
                return True
        elif isinstance(node, ast.FunctionDef) and node.lineno <= load.lineno <= (node.end_lineno or 0):
            named = any(one.arg == on for one in (*node.args.args, *node.args.kwonlyargs))
            if named and not re.search(r"model|net|module", on, re.IGNORECASE):
                return True
    return False


def _loads(script: Script) -> Iterator[tuple[ast.Call, str]]:
    """Calls that take a state, with what takes it."""
    for node in ast.walk(script.tree) if "load_state_dict" in script.source else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load_state_dict":
            yield node, ast.unparse(node.func.value)


def _asking(script: Script, loads: Sequence[tuple[Script, ast.Call, str]]) -> Iterator[ast.If]:
    """Conditions on resuming under which a state is loaded, there or in a function that is called there."""
    rooms = {
        room.name
        for one, load, _ in loads
        for room in ast.walk(one.tree)
        if isinstance(room, ast.FunctionDef) and room.lineno <= load.lineno <= (room.end_lineno or 0)
    }
    for node in ast.walk(script.tree):
        if isinstance(node, ast.If) and _RESUMES.search(ast.unparse(node.test)):
            inside = "\n".join(map(ast.unparse, node.body))
            if "load_state_dict" in inside or any(re.search(rf"\b{name}\(", inside) for name in rooms):
                yield node
