"""Which configurations a program of the project is given."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import connected


def configurations_given(script: Script, project: Project) -> Iterator[ConfigFile]:
    """Configurations that commands give the programs which load them here, or that commands in documents do."""
    configs = {config.file: config for config in project.configs}
    near = {one.file for one in connected(script, project)}
    starts = [launch for launch in project.launches if launch.script in near]
    named = {name for launch in starts for name in launch.configs}
    if not starts:
        programs = "|".join(re.escape(file.rpartition("/")[2]) for file in near)
        lines = [line for text in project.documents.values() for line in text.split("\n") if re.search(programs, line)]
        named = {
            file
            for file in configs
            if any(re.search(rf"(?<![\w./-])(?:\./)?{re.escape(file)}\b", one) for one in lines)
        }
    yield from (
        config for file, config in configs.items() if file in named and config.kind not in ("accelerate", "deepspeed")
    )
