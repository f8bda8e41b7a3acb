"""A loop saves its model on the way, and cannot go on from there."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.duration import hours_asked_for, hours_said
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, takes_steps, text_at
from dynotune.audit.facts.together import code, connected, leads_out
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_STATE = re.compile(
    r"optim\w*\.state_dict|save_state|save_checkpoint|resume|load_checkpoint|checkpoint\.save|dcp\.|get_state_dict|\bopt\.state_dict"
    r"|optimizer_state|state_dict\(\)\s*for|StatefulDataLoader|checkpointer",
    re.IGNORECASE,
)


_MADE = re.compile(r"(?:^|\.)optim(?:izers?)?\.|^(?:bitsandbytes|bnb|timm\.optim|apex\.optimizers|lion_pytorch)\.")
"""Names of calls that make an optimizer, whatever it is called then."""


def _keeps_state(script: Script) -> bool:
    """It speaks of the optimizer's state: by words that are usual, or by what the file itself calls its optimizer (`od`)."""
    done = _done(script)
    if _STATE.search(done):
        return True
    made = {call.result.rpartition(".")[2] for call in script.calls if _MADE.search(call.name)}
    steps = {call.on.rpartition(".")[2] for call in script.calls if call.name.endswith("step") and call.on}
    clears = {call.on.rpartition(".")[2] for call in script.calls if call.name.endswith("zero_grad") and call.on}
    names = "|".join(re.escape(one) for one in made | (steps & clears) if one.isidentifier())
    return bool(names) and re.search(rf"(?<!\w)(?:{names})\.state_dict\b", done) is not None


def loop_that_cannot_go_on(script: Script, project: Project) -> Iterator[Said]:
    yield from _weights_alone(script, project)
    yield from _at_the_end_alone(script, project)
    yield from _never_loaded(script, project)


_WHOLE = re.compile(r"\.save_state\(|\.save_checkpoint\(|opt\w*\.state_dict\(\)|dcp\.save\(")
_LOADS = re.compile(
    r"load_state|load_checkpoint|resume|load_state_dict|dcp\.load|torch\.load\(|from_checkpoint|latest_checkpoint|restore",
    re.IGNORECASE,
)


def _never_loaded(script: Script, project: Project) -> Iterator[Said]:
    """The whole state is written again and again by a library that has a call to read it, or by a program with options, or
    in a job that the scheduler starts again, and no file of the project reads one."""
    source = code(script)
    if not _WHOLE.search(source) or any(_LOADS.search(code(one)) for one in project.scripts):
        return
    if any(_LOADS.search(text) for file, text in project.texts.items() if not file.endswith(".py")):
        return  # a launcher or a configuration may ask for it
    again = list(restarted(project))
    for call in script.calls:
        last = call.name.rpartition(".")[2]
        whole = last in ("save_state", "save_checkpoint") or (
            last == "save" and (again or _has_options(script) or _long(script, project)) and _has_state(script, call)
        )
        if whole and _repeated(call):
            yield Finding(
                f"`{call.name if last == 'save' else last}` writes the optimizer's state on the way, and nothing in the"
                " project loads it: a run that is stopped and started again begins at the first row, beside its"
                " checkpoints.",
                place=call.place,
                evidence=Evidence(Level.TEXT, {"saved": call.name, "loaded": None}),
                stake=Stake(AtStake.LOST),
                remedy=Remedy(
                    Risk.OPERATIONAL,
                    "Load the newest state at the start where there is one, and skip the rows that it has seen.",
                    effort=Effort.MINUTES,
                    measure="Kill it and start it again; compare the next losses.",
                ),
                also=tuple(again),
            )
            return


def _has_state(script: Script, call: Call) -> bool:
    """What is saved is, or has, an optimizer's state: said in the call, or where its variable gets it."""
    text = text_at(script, call.place)
    if _WHOLE.search(text):
        return True
    named = re.match(r"[\w.]+\(\s*(?:obj\s*=\s*)?(\w+)\s*,", text)
    return named is not None and any(
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == named[1]
        and _WHOLE.search(ast.unparse(node.value))
        for node in ast.walk(script.tree)
    )


def run_by_jobs(project: Project) -> dict[str, set[str]]:
    """Of launchers, the job files that run them in one of their lines: `srun bash scripts/run.sh`."""
    launchers: dict[str, set[str]] = {}
    for file in {launch.file for launch in project.launches}:
        launchers.setdefault(file.rpartition("/")[2], set()).add(file)
    found: dict[str, set[str]] = {}
    for other, text in project.texts.items():
        if re.search(r"^#(?:SBATCH|PBS)\b", text, re.MULTILINE):
            lines = (line for line in text.split("\n") if not line.lstrip().startswith("#"))
            for name in {word for line in lines for word in re.findall(r"[\w.-]+", line)} & launchers.keys():
                for file in launchers[name] - {other}:
                    found.setdefault(file, set()).add(other)
    return found


def restarted(project: Project) -> Iterator[Place]:
    """Lines of job files that ask the scheduler to start it again, or do so themselves."""
    again = re.compile(
        r"^#SBATCH\s+--requeue\b|^#PBS\s+-r\s+y|^#SBATCH\s+(-a|--array)[= ]\S+%1\b|--dependency=(singleton|afterany)"
        r"|scontrol\s+requeue|^\s*until\s+[^\n]{0,80}(python|torchrun|accelerate)|^\s*while\s+!\s[^\n]{0,80}(python|torchrun|accelerate)"
    )
    for file in sorted({launch.file for launch in project.launches}.union(*run_by_jobs(project).values())):
        for number, line in enumerate(project.texts.get(file, "").split("\n"), 1):
            if again.search(line):
                yield Place(file, number)


LONG, SHORT = 12.0, 0.5
"""Hours from which on a run is too much to lose, and up to which nobody goes on with one."""


_OPTIONS = re.compile(
    r"\.add_argument\(|\bfire\.Fire\(|\bFire\(|@click\.option|\btyper\.|\btyro\.cli\(|HfArgumentParser\(|@hydra\.main|\bsimple_parsing\b"
    r"|@draccus\.wrap|absl\.flags|\bflags\.DEFINE|\bjsonargparse\b|\bdocopt\("
)
"""A program with options, by whatever library."""


def _has_options(script: Script) -> bool:
    """`CLI` is a common name: it counts where it is the library's own."""
    of_lightning = any(
        one.partition(".")[0] in ("lightning", "pytorch_lightning") and one.endswith("CLI")
        for one in script.imports.values()
    )
    return of_lightning or _OPTIONS.search(code(script)) is not None


def _at_the_end_alone(script: Script, project: Project) -> Iterator[Said]:
    """Several epochs, or hours that the project itself speaks of, one save behind them, and nothing to begin from."""
    near = connected(script, project)
    if leads_out(near, project):
        return  # what was not read may save
    if _STATE.search(script.source) or any(
        _keeps_state(one) or re.search(r"(?<!\bdef )load_state_dict|checkpoint\w*[\"']?\s*[\])]?\.(pt|load)", code(one))
        for one in near
    ):
        return
    long, again = _long(script, project), tuple(restarted(project))
    if long is None and not again and not _has_options(script):
        return  # without options it is an example, not a program that somebody goes on with
    saving = {
        around.name
        for one in near
        for call in filter(_saves, one.calls)
        for around in call.around
        if around.kind == "function"
    }
    saves = [call for call in script.calls if _saves(call) or call.name.rpartition(".")[2] in saving]
    training = {around.name for loop in loops(script) for one in loop.calls for around in one.around}
    helping = saving - training  # what such a function does counts where it is called
    saves = [call for call in saves if not helping & {one.name for one in call.around if one.kind == "function"}]
    for loop in loops(script):
        turns = next((one for call in loop.calls for one in call.around if one.kind in ("for", "while")), None)
        epochs = next(
            (one for call in loop.calls for one in call.around if one.kind == "for" and "epoch" in one.name.lower()),
            None if long is None else turns,
        )
        later = [call for call in saves if call.place.line > loop.place.end_line]
        if not loop.optimizer_steps or epochs is None or not later or len(later) != len(saves):
            continue
        if any(_repeated(call) for call in saves) or re.search(r"range\(1\)", epochs.name):
            continue
        if long is None and _is_little(epochs.name, script):
            continue
        how = f" (about {long[0]:,.0f} hours by line {long[1].line} of `{long[1].file}`)" if long is not None else ""
        yield Finding(
            f"Nothing is saved before all of `{epochs.kind} {epochs.name}` is over{how}, and nothing can be gone on from: a"
            " run that stops begins again at the first row.",
            place=later[0].place if long is not None else loop.place,
            evidence=Evidence(Level.TEXT, {"saved": later[0].name, "optimizer": None, "hours": long and long[0]}),
            stake=Stake(AtStake.LOST),
            remedy=Remedy(
                Risk.OPERATIONAL,
                "Save weights, optimizer and step every so often, and load them at the start where they are.",
                effort=Effort.MINUTES,
                measure="Kill it and start it again; compare the next losses.",
            ),
            also=(
                loop.place if long is not None else later[0].place,
                *((long[1],) if long is not None else ()),
                *again,
            ),
        )
        return


def _is_little(over: str, script: Script) -> bool:
    """`range(args.epochs)`, of a flag whose default is one or two: little to lose."""
    named = re.search(r"range\(\w+\.(\w+)\)", over)
    spelled = (f"--{named[1]}", f"--{named[1].replace('_', '-')}") if named is not None else ()
    return any(flag is not None and flag.value in (1, 2) for flag in map(script.constants.get, spelled))


def _long(script: Script, project: Project) -> tuple[float, Place] | None:
    """Hours of a run that are too many to lose: those that the project speaks of, else what the scheduler is asked for."""
    said = hours_said(script, project)
    if said:
        return max(said, key=lambda one: one[0]) if max(said, key=lambda one: one[0])[0] >= LONG else None
    asked = hours_asked_for(script, project)
    return asked if asked is not None and asked[0] >= LONG else None


def _is_short(script: Script, project: Project) -> bool:
    """The project says that a run takes minutes, and nowhere that it takes longer."""
    said = hours_said(script, project)
    return bool(said) and max(hours for hours, _ in said) <= SHORT


def _weights_alone(script: Script, project: Project) -> Iterator[Said]:
    near = connected(script, project)
    if leads_out(near, project) or any(map(_keeps_state, near)):
        return  # the project's own code may save the rest
    saves = list(_on_the_way(script, near))
    if saves and not _is_short(script, project) and takes_steps(script):
        again = tuple(restarted(project))
        yield Finding(
            f"`{saves[0].name.rpartition('.')[2]}` keeps the weights on the way, nothing keeps the optimizer, the"
            f" schedule and"
            " the place in the data: a run that stops starts again from the first row.",
            place=saves[0].place,
            evidence=Evidence(Level.TEXT, {"saved": saves[0].name, "optimizer": None}),
            stake=Stake(AtStake.LOST),
            remedy=Remedy(
                Risk.OPERATIONAL,
                "Save and load the optimizer's, the schedule's and the generators' state and the step beside the"
                " weights, or use"
                " `accelerator.save_state()`.",
                effort=Effort.MINUTES,
                measure="Kill it and start it again; compare the next losses.",
            ),
            also=(*(call.place for call in saves[1:]), *again),
        )


def _done(script: Script) -> str:
    """Its code without the flags that it takes: one that nobody reads resumes nothing."""
    return re.sub(r"add_argument\([^\n]*", "", code(script))


def _on_the_way(script: Script, near: Sequence[Script]) -> Iterator[Call]:
    """Saves of weights in a loop of the script, or in a function of the program that one calls in a loop."""
    inside: dict[str, Call] = {}
    for other in near:
        for one in filter(_saves, other.calls):
            for around in one.around:
                if around.kind == "function":
                    inside.setdefault(around.name, one)
    for call in filter(_repeated, script.calls):
        if _saves(call):
            yield call
        elif (first := inside.get(call.name.rpartition(".")[2])) is not None:
            yield call
            yield first


def _saves(call: Call) -> bool:
    return call.name in ("torch.save", "safetensors.torch.save_model", "safetensors.torch.save_file") or (
        call.name.rpartition(".")[2] == "save_pretrained" and "token" not in call.on.lower()
    )


def _repeated(call: Call) -> bool:
    return any(around.kind in ("for", "while") for around in call.around)
