"""A document says that the run is one configuration's, and every command names another."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_THE_RUN = re.compile(
    r"\b(?:release[sd]?|report(?:ed)?|paper|published|numbers?|figures?|results?|table|scores?|final|current(?:ly)?|production"
    r"|in use|use[sd]?|trains?|trained|runs?|ran|starts?)\b",
    re.IGNORECASE,
)
"""Words of a clause that names the configuration of the run that counts."""

_ANOTHER = re.compile(
    r"\b(?:not?|never|without|old(?:er)?|earlier|before|previous\w*|former\w*|used to|first|future|plan\w*|next|todo|later"
    r"|draft|by hand|manual\w*|instead|if|can|could|may|might|or|either|optional\w*|example|template|copy|copied|kept"
    r"|for the record|archive\w*|deprecated|superseded|ablation\w*|other|baseline|compare\w*|smoke|debug|test\w*|eval\w*"
    r"|merge\w*)\b|n't\b|\[ \]",
    re.IGNORECASE,
)
_COMMAND = re.compile(
    r"(?:^|[`\s])(?:bash|sh|sbatch|python3?|torchrun|accelerate|axolotl|trl|llamafactory-cli|make|\./)\S*\s[^`]*"
)
"""What the document's line starts itself, to the end of its code: `bash run.sh` names nothing that stands behind it."""


def run_of_another_configuration(project: Project) -> Iterator[Said]:
    named = {name for launch in project.launches for name in launch.configs}
    used = [config for config in project.configs if config.file in named]
    if not used or any("${" in word for launch in project.launches for word in launch.behind if _is_config(word)):
        return
    texts = {file: text for file, text in project.texts.items() if file not in {one.file for one in project.configs}}
    for config in project.configs:
        siblings = [one for one in used if _alike(one, config)]
        name = PurePosixPath(config.file).name
        if config.file in named or not siblings or any(name in text for text in texts.values()):
            continue
        for document, text in project.documents.items():
            line = _said_to_run(text, config.file)
            if line:
                yield _finding(config, siblings[0], Place(document, line), project)
                break


def _is_config(word: str) -> bool:
    return bool(re.search(r"\.(?:ya?ml|json|toml)$|^\$\{\w+[^}]*\}$", word))


def _alike(one: ConfigFile, other: ConfigFile) -> bool:
    """Of one folder and kind, with most of the keys in common: two runs of one project."""
    keys, others = ({str(key) for key in config.values} for config in (one, other))
    near = PurePosixPath(one.file).parent == PurePosixPath(other.file).parent and one.kind == other.kind
    return near and len(keys & others) >= max(3, len(others) // 2)


def _said_to_run(text: str, file: str) -> int:
    """The line of a sentence that says so; 0: there is none. Where a command of the document names the file, it is used."""
    name = re.escape(PurePosixPath(file).name)
    lines = text.split("\n")
    if any(re.search(name, command) for line in lines for command in _COMMAND.findall(line)):
        return 0
    for sentence in re.finditer(r"[^\n|](?:[^.;|\n]|\.(?=\S)|\n(?!\s*(?:\n|[-*#|])))*", text):
        found = re.search(rf"[^,()]*(?<![\w-]){name}", sentence[0])
        if found is None:
            continue
        # Past the name too: "... is the one of v2.yml, the scripts train it".
        clause = f"{sentence[0][: found.start()]} {found[0]}".replace(file, " ")
        if _THE_RUN.search(clause) and not _ANOTHER.search(clause):
            return text.count("\n", 0, sentence.start() + found.end()) + 1
    return 0


def _finding(config: ConfigFile, other: ConfigFile, said: Place, project: Project) -> Finding:
    launch = next(one for one in project.launches if other.file in one.configs)
    return Finding(
        f"`{said.file}` says that the run is `{config.file}`'s, and every command names `{other.file}`: what is trained is"
        " not what is described.",
        place=Place(config.file, 1),
        also=(said, Place(launch.file, launch.place.end_line or launch.place.line)),
        evidence=Evidence(Level.TEXT, {"described": config.file, "started": other.file}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(Risk.OPERATIONAL, f"Start `{config.file}`, or mend the text."),
    )
