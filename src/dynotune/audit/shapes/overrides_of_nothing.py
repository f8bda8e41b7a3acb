"""Words `key=value` of a command that OmegaConf puts into a configuration under a name that nothing reads."""

import re

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.setting import Setting
from dynotune.audit.facts.together import code, connected
from dynotune.audit.read.launched import overrides

_MERGES = re.compile(r"OmegaConf\.from_(?:cli|dotlist)\(")
_CLOSED = re.compile(r"set_struct|OmegaConf\.structured|\bflag_override\b")


def overrides_of_nothing(launch: Launch, script: Script, project: Project) -> list[Setting]:
    """Keys that the command's configuration has not, and that no line of the program names."""
    if not _MERGES.search(script.source) or _CLOSED.search(script.source):
        return []
    configs = [config for config in project.configs if config.file in launch.configs]
    text = "\n".join(code(one) for one in connected(script, project))
    if len(configs) != 1 or re.search(r"to_container|\*\*\w*cfg|\*\*\w*conf", text):
        return []
    return [
        one
        for one in overrides(launch)
        if configs[0].at(one.name) is None
        and one.name not in configs[0].places
        and not re.search(rf"\.{re.escape(last := one.name.rpartition('.')[2])}\b|[\"']{re.escape(last)}[\"']", text)
    ]
