"""Variables of the environment that a project's commands set for the scripts that they start."""

from collections.abc import Mapping, Sequence

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.setting import Setting


def exported_by_all(launches: Sequence[Launch]) -> Mapping[str, Setting]:
    """Variables with one known value, which every command sets that starts a script that is started with it."""
    found: dict[str, Setting] = {}
    for name in {name for launch in launches if launch.script for name in launch.variables}:
        scripts = {launch.script for launch in launches if launch.script and name in launch.variables}
        given = [launch.variables.get(name) for launch in launches if launch.script in scripts]
        first = given[0]
        if first is not None and first.is_known and all(one is not None and one.value == first.value for one in given):
            found[name] = first
    return found
