"""A program has an option for its precision, asks for 16 bits by it, and hands it to nothing that computes."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dynotune.audit.facts.asked import on_gpu
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_NAMES = ("mixed_precision", "precision", "amp_dtype", "bf16", "fp16", "use_bf16", "use_fp16", "use_amp")
_ASKED = frozenset({"bf16", "fp16", "bfloat16", "float16", "bf16-mixed", "16-mixed", True})
_OTHERWISE = re.compile(
    r"autocast|\.bfloat16\(|\.half\(|torch\.(?:bfloat16|float16|half)\b|[\"'](?:bfloat16|float16)[\"']|set_default_dtype"
    r"|GradScaler|\bdeepspeed\b|Fabric\(|Trainer\(\s*precision|getattr\(\s*torch"
)
"""What computes or loads in 16 bits without the option."""

_OF_A_FILE = re.compile(r"\bdeepspeed\s*=\s*[^,)\n]*")
"""What the trainer's arguments hand on; the file is read by itself."""

_WHOLE = re.compile(
    r"\bvars\(|\basdict\(|__dict__|\bfields\(|_get_kwargs|model_dump|\*\*\w*(?:args|cfg|config|conf|opts?|params)\b"
    r"|\bto_container\(|\binstantiate\(|\bgetattr\("
)
_SHOWN = re.compile(
    r"(?:\bconfig\s*=\s*|\b(?:print|pprint|info|dumps?|init_trackers|log_params|update|save_hyperparameters)\([^()\n]{0,80}?)"
    r"(?:\w+\.)*(?:vars|asdict)\([\w.]*\)"
    r"|\{\s*\w+\.name\s+for \w+ in (?:\w+\.)?fields\([\w.]+\)\s*\}"
    r"|\*args,\s*\*\*\w+"
)
"""All options together, as a log gets them, or as names that a file may have."""

_SHOWS = re.compile(
    r"(?:^|\.)(?:print|pprint|info|debug|warning|log|init|echo|secho|write|format|init_trackers|dumps?|update)$"
)


@dataclass(frozen=True, slots=True)
class _Option:
    name: str
    value: Any
    place: Place
    command: Place | None = None


def precision_that_nobody_gets(job: Job, project: Project) -> Iterator[Said]:
    if not _in_float32(job) or not on_gpu(job):
        return
    homes = [one for one in project.scripts if one.file in job.files]
    main = next((one for one in homes if one.file == job.home.file), None)
    if main is None:
        return
    program = connected(main, project)
    sources = [code(one) for one in program]
    if _deepspeed_leaves_it(job, project):
        sources = [_OF_A_FILE.sub("", one) for one in sources]
    if any(_OTHERWISE.search(one) or _WHOLE.search(_SHOWN.sub("", one)) for one in sources):
        return
    made = [(one, call) for one in program for call in one.calls_of("Accelerator")]
    if any({"mixed_precision", "**", "2"} & set(call.arguments) for _, call in made):
        return
    for option in (*_options(program, job, project), *_of_files(job, project)):
        if any(_uses(option.name, one) for one in program):
            continue
        gets = "`Accelerator()` does not get it" if made else "neither the trainer nor `autocast` gets it"
        home = made[0][1].place if made else option.place
        yield Finding(
            f"`{option.name}` asks for `{option.value}`, and {gets}: {_then(job, program, project)}",
            place=home,
            also=tuple(one for one in (option.place, option.command) if one is not None and one != home),
            evidence=Evidence(Level.RESOLVED, {"asked": option.value, "launcher": job.get("mixed_precision")}),
            stake=Stake(
                AtStake.TIME, 0.5, 0.9, "float32 products run past the matrix units, or as TF32 at half the rate"
            ),
            remedy=Remedy(
                Risk.NUMERIC,
                f"Give it on: {_home(job, made)}; or take `{option.name}` out.",
                accuracy="Products round to bfloat16; the weights stay float32.",
            ),
        )
        return


def _home(job: Job, made: Sequence[object]) -> str:
    """What has to get it, in this program."""
    if made:
        return "`Accelerator(mixed_precision=...)`"
    if job.trainer is Trainer.TORCH:
        return "the forward pass under `torch.autocast`"
    return (
        f"`{'TrainingArguments' if job.trainer is Trainer.TRANSFORMERS else 'SFTConfig'}(bf16=...)`"
        if (job.trainer is Trainer.TRANSFORMERS or job.method is Method.SFT)
        else "`bf16=...` of the trainer's arguments"
    )


def _then(job: Job, program: Sequence[Script], project: Project) -> str:
    """What it computes in: of a checkpoint that is loaded without a type, by the release."""
    pinned = project.pinned("transformers")
    loads = any(one.name.startswith("transformers.") for each in program for one in each.calls_of("from_pretrained"))
    if loads and job.get("dtype") in (None, "auto") and (pinned is None or pinned >= (5,)):
        return (
            "the program computes in the type that its weights are loaded in, which is float32 before transformers 5."
        )
    return "the program computes in float32."


def _deepspeed_leaves_it(job: Job, project: Project) -> bool:
    """The job's DeepSpeed file is here, and takes the type from the arguments or asks for none."""
    named = job.get("deepspeed")
    held = [one for one in project.configs if isinstance(named, str) and one.file.endswith(named.removeprefix("./"))]
    return len(held) == 1 and all(held[0].at(f"{one}.enabled") in (None, False, "auto") for one in ("bf16", "fp16"))


def _in_float32(job: Job) -> bool:
    """Nothing that was read asks for 16 bits where it counts."""
    if job.holes or job.get("mixed_precision") not in ("no", None) or job.get("dtype") not in (None, "float32", "auto"):
        return False
    if job.trainer is Trainer.TORCH:
        return True
    if job.trainer not in (Trainer.TRANSFORMERS, Trainer.TRL):
        return False
    return all(
        job.get(name) is False and not job.is_given(name) for name in ("bf16", "fp16")
    ) and job.home.file.endswith(".py")


def _options(program: Sequence[Script], job: Job, project: Project) -> Iterator[_Option]:
    """Of its parsers, dataclasses and commands, whose value is 16 bits: as the launcher gives it, else by default."""
    launches = [one for one in project.launches if one.script in {script.file for script in program}]
    for script in program:
        for name in _NAMES:
            found = script.constants.get(f"--{name}") or script.constants.get(f"--{name.replace('_', '-')}")
            default, place = (found.value, found.place) if found is not None else _parameter(name, script)
            if place is None or _inherits(place, script):
                continue
            given = [one.flags[name] for one in launches if name in one.flags]
            values = [one.value for one in given] or [default]
            if all(isinstance(one, str | bool) and one in _ASKED for one in values):
                yield _Option(name, values[0], place, given[0].place if given else None)


def _of_files(job: Job, project: Project) -> Iterator[_Option]:
    """Of configurations of the program's own that the job is made of."""
    for config in project.configs:
        if config.kind != "unknown" or config.file not in job.files:
            continue
        for path, place in config.places.items():
            value = config.at(path)
            if path.rpartition(".")[2] in _NAMES and isinstance(value, str | bool) and value in _ASKED:
                yield _Option(path.rpartition(".")[2], value, place)


def _parameter(name: str, script: Script) -> tuple[Any, Place | None]:
    """Of a function that click, typer or fire makes a command of."""
    if name not in script.source:
        return None, None
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        every = [*node.args.posonlyargs, *node.args.args]
        held = next((one for one in (*every, *node.args.kwonlyargs) if one.arg == name), None)
        if held is None:
            continue  # before the file is searched, once for each of its functions
        marks = " ".join(ast.unparse(one) for one in node.decorator_list)
        started = re.search(r"click\.|\.command\(", marks) or re.search(
            rf"\b(?:fire\.)?Fire\(\s*{node.name}\b|typer\.run\(\s*{node.name}\b", script.source
        )
        if not started:
            continue
        defaults = dict(zip(reversed(every), reversed(node.args.defaults), strict=False))
        said = defaults.get(held)
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and re.search(
                rf"['\"]--{name.replace('_', '[-_]')}['\"/]", ast.unparse(mark)
            ):
                said = next((one.value for one in mark.keywords if one.arg == "default"), None)
                held_at: ast.AST = mark
                break
        else:
            held_at = held
        if isinstance(said, ast.Call) and said.args:
            said = said.args[0]  # `typer.Option("bf16")`
        return said.value if isinstance(said, ast.Constant) else None, place_of(script, held_at)
    return None, None


def _inherits(place: Place, script: Script) -> bool:
    """It is a field of a class with bases, which may read it."""
    return any(
        isinstance(node, ast.ClassDef) and node.bases and node.lineno <= place.line <= (node.end_lineno or 0)
        for node in ast.walk(script.tree)
    )


def _uses(name: str, script: Script) -> bool:
    """Whether the file reads the option for anything but to show it."""
    above = {child: node for node in ast.walk(script.tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(script.tree):
        named = (
            (isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load))
            or (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load))
            or (isinstance(node, ast.Constant) and node.value == name)
        )
        if not named:
            continue
        one: ast.AST | None = node
        below: ast.AST = node
        while (
            one is not None
            and not _shows(one)
            and not (isinstance(one, ast.If) and below is one.test and _only_says(one))
        ):
            below, one = one, above.get(one)
        if one is None:
            return True
    return False


def _shows(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _SHOWS.search(ast.unparse(node.func)) is not None


def _only_says(node: ast.If) -> bool:
    """`if args.bf16: print("training in bfloat16")`."""
    return all(isinstance(one, ast.Expr) and _shows(one.value) for one in (*node.body, *node.orelse))
