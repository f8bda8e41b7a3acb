"""A document says that training is as a file of accelerate's or DeepSpeed's has it, and every command gives another file."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.run_of_another_configuration import run_of_another_configuration

_SO_IT_IS = re.compile(
    r"\b(?:shards|(?:is|are) (?:fully )?(?:sharded|trained|run|launched|split|distributed|started)|uses|trains|runs|goes"
    r"|(?:we|training) (?:train|use|run|shard|is|launch)\w*|launched (?:with|by)|(?:configured|set|described|defined) in)\b",
    re.IGNORECASE,
)
"""What a sentence says of the run, and does not tell the reader to do."""

_OF_THE_RUN = re.compile(r"\b(?:training|we|the (?:training )?run)\b", re.IGNORECASE)
_OR_NOT = re.compile(
    r"\b(?:not?|never|without|unused|instead|if|or|optional\w*|can|could|may|might|when|unless|alternativ\w*|also|both|another"
    r"|to (?:use|run|train|switch)|need\w*|want|switch|other|larger|smaller|bigger|fewer|more|earlier|previous\w*|old"
    r"|template|example|copy|edit|pass|give|first|then|plan\w*|todo|later|tests?|debug\w*|smoke|for|nodes"
    r"|on (?:the|an?|our) (?:\w+ )?(?:cluster|server|node|machine|pod))\b"
    r"|n't\b|\?",
    re.IGNORECASE,
)
"""Words of a sentence that tells of another run than the usual one, or of a condition."""

_COMMAND = re.compile(r"--config[_-]file|accelerate launch|ACCELERATE_CONFIG|\bcp\b|\bln\b|^(?: {4}|\t)|^\s*[$>]")


def described_launcher_file(project: Project) -> Iterator[Said]:
    starts = [launch for launch in project.launches if launch.launcher.endswith("accelerate launch")]
    if all("config_file" in launch.launcher_flags for launch in starts):  # without any: a finding of its own
        yield from _of_kind("accelerate", starts, project)
    yield from _of_kind("deepspeed", [one for one in project.launches if "deepspeed" in one.flags], project)


def _of_kind(kind: str, starts: Sequence[Launch], project: Project) -> Iterator[Said]:
    """Of files of one launcher's, or of DeepSpeed's, that commands give."""
    kinds = {config.file: config for config in project.configs if config.kind == kind}
    used = {file for launch in starts for file in launch.configs if file in kinds}
    if not used or any("${" in " ".join(launch.words) and not used & set(launch.configs) for launch in starts):
        return
    spoken = {said.place.file for said in run_of_another_configuration(project) if isinstance(said, Finding)}
    for file, config in kinds.items():
        name = PurePosixPath(file).name
        if file in used | spoken or any(name in text for where, text in project.texts.items() if where != file):
            continue
        for document, text in project.documents.items():
            line = _said(text, name)
            if line and not any(PurePosixPath(one).name in text for one in used):  # it tells of both: which, it knows
                yield _finding(config, sorted(used)[0], Place(document, line), project)
                break


def _said(text: str, name: str) -> int:
    """The line of a sentence that says that it is so; 0: none, or a command takes the file."""
    word = re.compile(rf"(?<![\w-]){re.escape(name)}")
    if any(word.search(line) and _COMMAND.search(line) for line in text.replace("\\\n", " ").split("\n")):
        return 0
    prose = _prose(text, name)
    for sentence in re.finditer(r"[^\n](?:[^.;\n]|\.(?=\S)|\n(?!\s*(?:\n|[-*#|])))*", prose):
        said = sentence[0]
        if not word.search(said) or not _SO_IT_IS.search(said) or _OR_NOT.search(said):
            continue
        if _OF_THE_RUN.search(said):
            return text.count("\n", 0, sentence.start() + sentence[0].index(name)) + 1
    return 0


def _prose(text: str, name: str) -> str:
    """The text with its fences, its tables and the entries of its lists that begin with the file's name left empty: they say
    what a file is, and not what runs."""
    entry = re.compile(rf"\s*(?:[-*+]|\d+[.)])\s+\W*(?:[\w.-]+/)*{re.escape(name)}")
    kept: list[str] = []
    fenced = False
    for line in text.split("\n"):
        mark = re.match(r"\s*(?:```|~~~)", line) is not None
        fenced = fenced is not mark
        kept.append("" if fenced or mark or line.lstrip().startswith("|") or entry.match(line) else line)
    return "\n".join(kept)


def _finding(config: ConfigFile, other: str, said: Place, project: Project) -> Finding:
    launch = next(one for one in project.launches if other in one.configs)
    kind = config.values.get("distributed_type")
    sharded = config.kind == "deepspeed"
    return Finding(
        f"`{said.file}` says that training is as `{config.file}` has it"
        f"{f' (`distributed_type: {kind}`)' if isinstance(kind, str) else ''}, and every command gives"
        f" {'DeepSpeed' if sharded else 'accelerate'} `{other}`.",
        place=Place(config.file, 1),
        also=(said, launch.place),
        evidence=Evidence(Level.TEXT, {"described": config.file, "started": other}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Start it with `--{'deepspeed' if sharded else 'config_file'} {config.file}`, or mend the text.",
        ),
    )
