"""A document sends the reader to a configuration's values, and no program of the project reads the file."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.extended import reads_configurations

_SENDS = re.compile(
    r"\b(?:settings?|hyper-?parameters?|configurations?|config|parameters?|options?|values|learning rate|batch size)\b"
    r"[^.]{0,60}\b(?:live|lives|are|is|come|comes|stand|set|read|taken|kept|defined|go)\b"
    r"|\b(?:edit|change|adjust|tune|modify|configured? (?:in|by|via|with))\b",
    re.IGNORECASE,
)
_OR_NOT = re.compile(
    r"\b(?:not?|never|without|unused|old|earlier|previous\w*|plan\w*|todo|later|example|template|copy|for reference"
    r"|record\w*|deprecated|once|wandb|sweep|inference|serv\w*|deploy\w*|eval\w*)\b|n't\b",
    re.IGNORECASE,
)
_ANY = re.compile(
    r"--config|\bconfigargparse\b|jsonargparse|parse_args_and_config|TrlParser|LightningCLI|Hydra|hydra|omegaconf|OmegaConf"
    r"|\bglob\(|listdir\(|iterdir\(|\.ya?ml\b|\.toml\b|\bdynaconf\b|\bconfuse\b|ConfigParser|draccus|tyro|\byaml\b|\bruamel\b",
)
"""A program that may read any configuration."""

_COMMAND = re.compile(
    r"(?:^|[`\s])(?:bash|sh|sbatch|python3?|torchrun|accelerate|axolotl|trl|llamafactory-cli|make|\./)\S*\s[^`]*"
)


def told_to_edit_what_nobody_reads(project: Project) -> Iterator[Said]:
    starts = [launch for launch in project.launches if launch.script]
    if not starts or any(reads_configurations(one) or _ANY.search(one.source) for one in project.scripts):
        return
    if any("${" in word for launch in project.launches for word in launch.behind if not word.startswith("-")):
        return  # whoever calls it may hand a file on
    known = {config.file for config in project.configs}
    texts = {file: text for file, text in project.texts.items() if file not in known}
    for config in project.configs:
        name = PurePosixPath(config.file).name
        if config.kind in ("accelerate", "deepspeed", "hydra") or any(
            config.file in one.configs for one in project.launches
        ):
            continue
        if any(name in text or f"/{PurePosixPath(config.file).stem}" in text for text in texts.values()):
            continue
        for document, text in project.documents.items():
            line = _sent(text, config.file)
            if line:
                yield Finding(
                    f"`{document}` sends the reader to `{config.file}` for the settings, and no command, script or"
                    " configuration reads it: what is edited there changes nothing.",
                    place=Place(config.file, 1),
                    also=(Place(document, line), starts[0].place),
                    evidence=Evidence(Level.TEXT, {"document": document, "read by": None}),
                    stake=Stake(AtStake.CLARITY),
                    remedy=Remedy(
                        Risk.OPERATIONAL, f"Have `{starts[0].file}` hand it to the program, or mend the text."
                    ),
                )
                break


def _sent(text: str, file: str) -> int:
    """The line of a sentence that says so; 0: none, or a command of the document takes the file."""
    name = re.escape(PurePosixPath(file).name)
    if any(re.search(name, command) for line in text.split("\n") for command in _COMMAND.findall(line)):
        return 0
    for sentence in re.finditer(r"[^\n|](?:[^.;|\n]|\.(?=\S)|\n(?!\s*(?:\n|[-*#|])))*", text):
        found = re.search(rf"(?<![\w-]){name}", sentence[0])
        said = sentence[0].replace(file, " ")
        if found and _SENDS.search(said) and not _OR_NOT.search(said):
            return text.count("\n", 0, sentence.start() + found.end()) + 1
    return 0
