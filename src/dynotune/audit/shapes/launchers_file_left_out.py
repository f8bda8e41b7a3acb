"""A file of accelerate's lies in the project, and its commands start `accelerate launch` without it."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_STARTS = re.compile(r"\baccelerate(?:\.commands\.launch| launch)\b")
_TAKES = re.compile(r"--config[_-]file|ACCELERATE_CONFIG_FILE|default_config|\bcp\b|\bln\b")
_BY_HAND = re.compile(r"by hand|manual|not used|unused|example|template|reference|--config_file", re.IGNORECASE)
_HEAD = 10
"""Lines at a file's beginning in which it may say what it is for."""


def launchers_file_left_out(project: Project) -> Iterator[Said]:
    starts = [
        launch
        for launch in project.launches
        if launch.launcher.endswith("accelerate launch") and "config_file" not in launch.launcher_flags
    ]
    told = [
        Place(file, number)
        for file, text in project.documents.items()
        for number, line in enumerate(text.split("\n"), 1)
        if _STARTS.search(line) and not _TAKES.search(line)
    ]
    if not starts and not told:
        return
    for config in project.configs:
        if config.kind != "accelerate" or _is_taken(config, project) or _says_what_for(config):
            continue
        if any(
            other.kind == "accelerate" and other is not config and _is_taken(other, project)
            for other in project.configs
        ):
            continue  # one of several
        home = config.places.get("mixed_precision", Place(config.file, 1))
        yield _finding(config, [launch.place for launch in starts] or [home, *told], project)
        return


def _is_taken(config: ConfigFile, project: Project) -> bool:
    """A command names it, or a file that is no document; or a document in a command that gives it to accelerate."""
    name = PurePosixPath(config.file).name
    if any(config.file in launch.configs for launch in project.launches):
        return True
    if any(name in text for file, text in project.texts.items() if file != config.file):
        return True
    if name == "default_config.yaml":
        return True
    return any(
        name in line and _TAKES.search(line)
        for text in project.documents.values()
        for line in _joined(text).split("\n")
    )


def _joined(text: str) -> str:
    return text.replace("\\\n", " ")


def _says_what_for(config: ConfigFile) -> bool:
    return any(_BY_HAND.search(text) for line, text in config.comments.items() if line <= _HEAD)


def _finding(config: ConfigFile, starts: list[Place], project: Project) -> Finding:
    asks = config.values.get("mixed_precision")
    precision = f": its `mixed_precision: {asks}` is nobody's" if asks in ("bf16", "fp16", "fp8") else ""
    name = PurePosixPath(config.file).name
    said = [
        Place(file, number)
        for file, text in project.documents.items()
        for number, line in enumerate(text.split("\n"), 1)
        if name in line
    ]
    return Finding(
        f"`accelerate launch` is started without `--config_file {config.file}`, and reads the machine's own file or"
        f" none{precision}.",
        place=starts[0],
        also=(config.places.get("mixed_precision", Place(config.file, 1)), Place(config.file, 1), *starts[1:], *said),
        evidence=Evidence(Level.TEXT, {"unused": config.file, "mixed_precision": asks}),
        stake=Stake(AtStake.RESULT if precision else AtStake.CLARITY),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Start it with `--config_file {config.file}`, or take the file out.",
            accuracy="The file's precision and number of processes then hold.",
        ),
    )
