"""A launcher gives a variable a value in a line of its own and exports it nowhere: what it starts does not see it."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from dynotune.audit.facts.launch import SHELL, Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.lines import lines_of
from dynotune.audit.place import Place

_SETS = re.compile(r"^[ \t]*([A-Z][A-Z0-9_]*)=(\"[^\"]*\"|'[^']*'|[^\s;&|()]*)[ \t]*(?:#.*)?$")
_EXPORTS_ALL = re.compile(
    r"\bset\s+-\w*a\b|\bset\s+-o\s+allexport|^\s*env\s|[;&|]\s*env\s|\benvsubst\b|\bdeclare\s+-\w*x", re.MULTILINE
)
_OF_LIBRARIES = frozenset(
    {
        *("TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "HF_HOME"),
        *(
            "HF_DATASETS_CACHE",
            "HF_HUB_OFFLINE",
            "TRANSFORMERS_OFFLINE",
            "WANDB_PROJECT",
            "WANDB_MODE",
            "WANDB_RUN_GROUP",
        ),
        *("NCCL_DEBUG", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "FORCE_TORCHRUN", "ACCELERATE_MIXED_PRECISION"),
        *("HF_HUB_ENABLE_HF_TRANSFER", "CUDA_VISIBLE_DEVICES", "TORCH_NCCL_BLOCKING_WAIT", "LLAMAFACTORY_VERBOSITY"),
    }
)
"""What Python's packages read of the environment, and no shell does."""

_READS = re.compile(r"(?:environ(?:\.get|\.pop)?|getenv)\s*[\[(]\s*[\"']([A-Z][A-Z0-9_]*)[\"']")


def set_and_not_exported(launch: Launch, project: Project) -> Iterator[Said]:
    text = project.texts.get(launch.file, "")
    if next((one for one in project.launches if one.file == launch.file), None) is not launch:
        return
    if not launch.file.endswith(tuple(SHELL)) or _EXPORTS_ALL.search(text) or _is_taken_in(launch.file, project):
        return
    started = {one.script for one in project.launches if one.file == launch.file and one.script}
    read = {
        name
        for script in project.scripts
        if script.file in started
        for one in connected(script, project)
        for name in _READS.findall(code(one))
    }
    taken = _taken_in(launch.file, text, project)
    if any(_EXPORTS_ALL.search(project.texts[file]) for file in taken):
        return
    whole = "\n".join((text, *(project.texts[file] for file in taken)))
    every = [
        (file, number, line)
        for file in (launch.file, *taken)
        for number, line in enumerate(lines_of(project.texts.get(file, "")), 1)
    ]
    for file, number, line in every:
        found = _SETS.match(line)
        if found is None or (found[1] not in read and found[1] not in _OF_LIBRARIES):
            continue
        name = found[1]
        # Slurm, and whoever exported it before, has it in the environment already: the new value goes along.
        inherited = name == "CUDA_VISIBLE_DEVICES" and "SBATCH" in text
        if inherited or _is_used(name, whole) or any(name in one.variables for one in project.launches):
            continue
        if name in read and any(re.search(rf"\b{name}=", told) for told in project.documents.values()):
            continue
        yield Finding(
            f"`{name}` is set in a line of its own and not exported: `{launch.script or launch.program}` starts without it"
            + (" and takes its own value." if name in read else ", and the package that it is for never sees it."),
            place=Place(file, number),
            also=(launch.place,),
            evidence=Evidence(Level.TEXT, {"variable": name, "exported": False}),
            stake=Stake(AtStake.RESULT if name in read else AtStake.CLARITY),
            remedy=Remedy(Risk.BEHAVIOURAL, f"Write `export {name}=...`, or put it in front of the command."),
        )


def _is_used(name: str, text: str) -> bool:
    """The file speaks of it otherwise: it exports it, hands it on by its value, or sets it in front of a command."""
    word = re.compile(rf"\b{name}\b")
    return any(
        word.search(line) and not line.lstrip().startswith("#") and _SETS.match(line) is None for line in lines_of(text)
    )


def _taken_in(file: str, text: str, project: Project) -> list[str]:
    """Files of the project that this one sources, where each name is one file's alone."""
    named = re.findall(r"(?m)(?:^|[;&])\s*(?:source|\.)\s+[\"']?\S*?([\w.-]+)[\"']?\s*(?:$|[;&#])", text)
    found = [[one for one in project.texts if one != file and PurePosixPath(one).name == name] for name in named]
    return [ones[0] for ones in found if len(ones) == 1]


def _is_taken_in(file: str, project: Project) -> bool:
    """Another file sources this one, and may export what it sets."""
    name = re.escape(PurePosixPath(file).name)
    takes = re.compile(rf"(?m)(?:^|[;&])\s*(?:source|\.)\s+\S*{name}\b")
    return any(takes.search(text) for other, text in project.texts.items() if other != file)
