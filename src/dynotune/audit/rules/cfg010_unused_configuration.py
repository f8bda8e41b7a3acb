"""CFG010: a configuration that nothing names."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.job import Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.setting import Setting, Unknown
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.configs.hydra import composed, primary_of
from dynotune.audit.read.configs.job import TRAINERS
from dynotune.audit.read.extended import reads_configurations
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.described_launcher_file import described_launcher_file
from dynotune.audit.shapes.launchers_file_left_out import launchers_file_left_out
from dynotune.audit.shapes.loaded_by_name import loaded_by_name
from dynotune.audit.shapes.named_by_nothing import named_by_nothing
from dynotune.audit.shapes.run_of_another_configuration import run_of_another_configuration
from dynotune.audit.shapes.told_to_edit_what_nobody_reads import told_to_edit_what_nobody_reads

_CONFIGURED = re.compile(r"TrlParser|parse_args_and_config|configargparse|jsonargparse|OmegaConf|[\"']--config")
_BY_HAND = re.compile(
    r"\bby hand\b|\bmanual(ly)?\b|\bnot used\b|\bunused\b|\bkept (for|as)\b|\bfor (reference|the record)\b|\barchive[ds]?\b"
    r"|\bon demand\b|\btemplate\b|\bcopy (me|this)\b|\bsuperseded\b|\bdeprecated\b|\bexample of\b",
    re.IGNORECASE,
)
_HEAD = 10
"""Lines at the beginning of a file in which it may say what it is for."""

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"


def check(project: Project, whole: Project) -> Iterator[Said]:
    said: set[str] = set()
    for one in _told(project):
        if isinstance(one, Finding):
            said |= {one.place.file, *(place.file for place in one.also)}
        yield one
    for one in named_by_nothing(project):
        if isinstance(one, Finding) and one.place.file not in said:
            yield one


def _told(project: Project) -> Iterator[Said]:
    yield from _files(project)
    yield from _options(project)
    yield from _siblings(project)
    yield from _sharding(project)
    yield from _of_accelerate(project)
    yield from loaded_by_name(project)
    yield from run_of_another_configuration(project)
    yield from launchers_file_left_out(project)
    yield from described_launcher_file(project)
    yield from told_to_edit_what_nobody_reads(project)


_ZERO = re.compile(r"\bZeRO\b|\bdeepspeed\b", re.IGNORECASE)
_IN_USE = re.compile(r"\b(?:use[sd]?|using|shard\w*|train\w*|runs?|with)\b", re.IGNORECASE)
_NOT_IN_USE = re.compile(r"\b(?:not|no|without|unused|instead|if|or|optional\w*|can|could|may)\b|n't\b", re.IGNORECASE)


def _sharding(project: Project) -> Iterator[Said]:
    """A DeepSpeed file that a document says is in use, and that no command, configuration or script names."""
    if not (project.launches or project.jobs) or any(
        job.get("deepspeed") or job.get("zero_stage") for job in project.jobs
    ):
        return
    for config in project.configs:
        name = PurePosixPath(config.file).name
        if config.kind != "deepspeed" or any(
            name in text for file, text in project.texts.items() if file != config.file
        ):
            continue
        for document, text in project.documents.items():
            at = text.find(name)
            around = re.split(r"\n\s*\n|\.\s", text[max(0, at - 200) : at])[-1] if at >= 0 else ""
            if at < 0 and (found := _ZERO.search(text)) is not None:
                at = found.start()  # it names what the file is for
                around = next(one for one in re.split(r"\n\s*\n|\.\s", text) if _ZERO.search(one))
            if not _IN_USE.search(around) or _NOT_IN_USE.search(around):
                continue
            yield Finding(
                f"{document} says that `{config.file}` is used, and no command, configuration or script names it: "
                f"training is"
                " not sharded.",
                place=Place(config.file, 1),
                also=(Place(document, text[:at].count("\n") + 1),),
                evidence=Evidence(Level.TEXT, {"document": document, "named by": None}),
                stake=Stake(AtStake.CLARITY),
                remedy=Remedy(Risk.OPERATIONAL, f"Name it (`deepspeed: {config.file}`), or take the sentence out."),
            )
            break


def _of_accelerate(project: Project) -> Iterator[Said]:
    """A file of accelerate's where nothing at all is started by accelerate."""
    texts = {**project.documents, **project.texts}
    if not project.launches or any(_ACCELERATE.search(text) for text in texts.values()):
        return
    for config in project.configs:
        name = PurePosixPath(config.file).name
        if config.kind != "accelerate" or _says_what_for(config.file, config.comments):
            continue
        if any(name in text for file, text in project.texts.items() if file != config.file):
            continue
        told = [
            Place(document, number)
            for document, text in project.documents.items()
            for number, line in enumerate(text.split("\n"), 1)
            if name in line
        ]
        asks = config.values.get("distributed_type")
        start = next((one for one in project.launches if one.launcher), project.launches[0])
        yield Finding(
            f"No command starts anything by `accelerate launch`, and nothing else reads `{config.file}`"
            f"{f': its `distributed_type: {asks}` is not what runs' if isinstance(asks, str) else ''}.",
            place=Place(config.file, 1),
            also=(*told, start.place),
            evidence=Evidence(Level.TEXT, {"unused": config.file, "distributed_type": asks}),
            stake=Stake(AtStake.RESULT if told else AtStake.CLARITY),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Start it with `accelerate launch --config_file {config.file}`, or take the file out.",
            ),
        )


_ACCELERATE = re.compile(r"\baccelerate(?:\.commands\.launch| launch|-launch)\b|ACCELERATE_CONFIG")


def _options(project: Project) -> Iterator[Said]:
    """Files of a group of Hydra's that no list of defaults and no command selects."""
    started = {primary for script in project.scripts if (primary := primary_of(script)) is not None}
    if len(started) != 1 or not project.launches:
        return
    found = composed({config.file: config for config in project.configs}, *started.pop())
    if found is None:
        return
    used = {config.file for _, config in found.parts}
    groups = {PurePosixPath(file).parent for package, config in found.parts if package for file in (config.file,)}
    for config in project.configs:
        path = PurePosixPath(config.file)
        if path.parent not in groups or config.file in used:
            continue
        word = re.compile(rf"(?<![\w-]){re.escape(path.stem)}(?![\w-])")
        texts = {**project.documents, **project.texts}
        if any(word.search(text) for name, text in texts.items() if name != config.file):
            continue
        yield Finding(
            f"No command and no list of defaults selects `{path.parent.name}={path.stem}`.",
            place=Place(config.file, 1),
            evidence=Evidence(Level.TEXT, {"group": path.parent.name, "selected": sorted(used)}),
            stake=Stake(AtStake.CLARITY),
            remedy=Remedy(
                Risk.OPERATIONAL, "Select it where it was meant to be used, or say at its head what it is kept for."
            ),
        )


_OF_LAUNCHERS = ("accelerate", "deepspeed")


def _siblings(project: Project) -> Iterator[Said]:
    """Files beside one that is used, of the same kind: of a launcher, or of a script's own with the same keys."""
    if any(_GLOBS.search(text) for text in project.texts.values()):
        return
    used = [one for one in project.configs if _mentioned(one.file, project)]
    for config in project.configs:
        if config in used or _says_what_for(config.file, config.comments):
            continue
        folder, keys = PurePosixPath(config.file).parent, {str(key) for key in config.values}
        for other in used:
            alike = len(keys & {str(key) for key in other.values}) >= max(2, 0.7 * len(keys))
            same = config.kind == other.kind and PurePosixPath(other.file).parent == folder
            if same and (
                config.kind in _OF_LAUNCHERS or (config.kind == "unknown" and alike and _started(other, project))
            ):
                yield Finding(
                    f"No command, script or configuration of this project names `{config.file}`; `{other.file}` is used.",
                    place=Place(config.file),
                    evidence=Evidence(Level.TEXT, {"unused": config.file, "used": other.file}),
                    stake=Stake(AtStake.CLARITY),
                    remedy=Remedy(Risk.OPERATIONAL, "Start it from somewhere, or say at its head what it is kept for."),
                )
                break


_GLOBS = re.compile(
    r"\bglob\(|listdir\(|iterdir\(|\*\.(ya?ml|json)|f[\"'][^\"'\n]{0,80}\}\.(ya?ml|json)|\$\{?\w+\}?\.(ya?ml|json)"
)
"""Files that are found by a pattern, or named by a variable."""


def _started(config: ConfigFile, project: Project) -> bool:
    return any(config.file in launch.configs for launch in project.launches)


def _files(project: Project) -> Iterator[Said]:
    named = {name for launch in project.launches for name in launch.configs}
    known = {config.file: config for config in project.configs if config.kind in TRAINERS}
    started = {TRAINERS[known[name].kind][0] for name in named & set(known)}
    if not started:
        started = _by_scripts(project)
    if not started:
        return  # nothing is started here, or what is may read any file
    if any(_open(launch.flags.values()) or "${" in " ".join(launch.words[-2:]) for launch in project.launches):
        return  # a command takes its configuration from who calls it
    kinds = {known[name].kind for name in named & set(known)}
    unused = [
        file
        for file, config in known.items()
        if (config.kind in kinds if kinds else TRAINERS[config.kind][0] in started)
        and file not in named
        and not _mentioned(file, project)
        and not _says_what_for(file, config.comments)
    ]
    if not unused:
        return
    shown = ", ".join(f"`{file}`" for file in unused[:3]) + (f" and {len(unused) - 3} more" if len(unused) > 3 else "")
    yield Finding(
        f"No command, script or configuration of this project names {shown}.",
        place=Place(unused[0]),
        also=tuple(Place(file) for file in unused[1:]),
        evidence=Evidence(Level.TEXT, {"unused": unused, "used": sorted(named & set(known))}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(Risk.OPERATIONAL, "Start it from somewhere, or say at its head what it is kept for."),
    )


def _by_scripts(project: Project) -> set[Trainer]:
    """Trainers of the jobs that commands start by scripts, where no script reads a configuration of its own accord."""
    if any(reads_configurations(one) or _CONFIGURED.search(one.source) for one in project.scripts):
        return set()
    scripts = {launch.script for launch in project.launches if launch.script}
    return {job.trainer for job in project.jobs if scripts & set(job.files)}


def _open(settings: Iterable[Setting]) -> bool:
    return any(isinstance(one.value, Unknown) and one.name.startswith("config") for one in settings)


def _mentioned(file: str, project: Project) -> bool:
    path = PurePosixPath(file)
    texts = {**project.documents, **project.texts}
    return any(path.name in text or f"/{path.stem}" in text for name, text in texts.items() if name != file)


def _says_what_for(file: str, comments: Mapping[int, str]) -> bool:
    """Its head says that it is started by hand, or how, or why it is kept."""
    head = " ".join(text for line, text in sorted(comments.items()) if line <= _HEAD)
    return (
        bool(_BY_HAND.search(head))
        or re.search(rf"[\w-] (\S*/)?{re.escape(PurePosixPath(file).name)}\b", head) is not None
    )


RULE = Rule(
    code="CFG010",
    name="unused-configuration",
    summary="A configuration is named by no command of the project.",
    group=Group.CONFIGURATION,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="The project's commands start training, and a configuration of the same trainer is named nowhere.",
        why="Changes to it do nothing; a stale copy is taken for the one that ran.",
        detected="E0: a file of accelerate's (or of DeepSpeed's), where every `accelerate launch` goes without, or that a"
        " document says training is by, where every one has another; a DeepSpeed file that a document"
        " says is used, and nothing names; a configuration that a document calls the run's, where every command names"
        " another of its folder with the same keys; a configuration that a document sends the reader to for the"
        " settings, where no program reads any; no word of a file of Hydra's group in any other file; no shell"
        " script, Makefile, Python file, Markdown file or configuration has its name. Not where its own head says that"
        " it is started by hand or why it is kept, nor where a command takes its configuration as an argument, or,"
        " where none is named at all, where a script reads any. A file beside those that programs open by names in"
        " their code, where they take no other; accelerate's, where nothing is started by it; DeepSpeed's, where nothing"
        " asks for it; one with the arguments that a call writes out; a module of constants beside one that is imported.",
        proven="Search the project for its name.",
        deliberate=("It is started by hand, or by a scheduler that is configured elsewhere.",),
        sources=(),
    ),
    bad=Example(
        {
            "old.yaml": _SFT,
            "sft.yaml": _SFT,
            "run.sh": "trl sft --config sft.yaml\n",
        },
        says="names `old.yaml`",
    ),
    good=Example({"sft.yaml": _SFT, "run.sh": "trl sft --config sft.yaml\n"}),
)
