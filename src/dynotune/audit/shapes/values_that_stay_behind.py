"""A launcher holds a value under a flag's name, in a file that it sources, a variable of its own, or a configuration that
it takes apart, and does not pass it: the script runs with its own default."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dynotune.audit.facts.launch import SHELL, Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.setting import Unknown
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.accepts import Accepts
from dynotune.audit.read.launchers.command import plain

_SETS = re.compile(r"^\s*(?:export\s+|declare\s+(?:-\w+\s+)?|readonly\s+)?([A-Z][A-Z0-9_]*)=(.*)$")
_OR = re.compile(r"\$\{\w+:?-([^${}]*)\}")
"""`${AMP:-bf16}`."""

_SPEAKS = re.compile(r"^\s*(?:echo|printf|log|logger)\b")
_TAKES_APART = re.compile(
    r"(?:open\(\s*f?['\"]?|\b(?:yq|jq|tomlq|shyaml)\b[^\n|;]*?\s['\"]?|\bgrep\b[^\n|;]*?\s['\"]?)\$\{?(\w+)"
)
"""What reads a value out of a file that a variable names: `yaml.safe_load(open('$CONFIG'))`, `yq .lr "$CONFIG"`."""


def values_that_stay_behind(launch: Launch, script: Script, taken: Accepts, project: Project) -> Iterator[Finding]:
    yield from _sourced(launch, taken, project)
    same = [one for one in project.launches if (one.file, one.script) == (launch.file, launch.script)]
    if same[:1] == [launch] and any(launch.file.endswith(end) for end in SHELL):
        launch = replace(launch, flags={name: flag for one in same for name, flag in one.flags.items()})
        yield from _of_its_own(launch, script, taken, project)
        yield from _taken_apart(launch, script, taken, project)
    elif same[:1] == [launch] and launch.file.endswith(".py"):
        yield from _taken_apart(launch, script, taken, project)


def _sourced(launch: Launch, taken: Accepts, project: Project) -> Iterator[Finding]:
    """A file that the launcher sources has a value of a flag's name, other values of it are passed, and this one is not."""
    command = _command(launch, project)
    passed = {name for name in launch.sourced if re.search(rf"\$\{{?{re.escape(name)}\b", command)}
    for name, setting in launch.sourced.items():
        flag = name.lower()
        if not passed or name in passed or name in launch.variables or flag in launch.flags or flag not in taken.flags:
            continue
        if not _in_the_environment(name, project):
            yield _finding(
                launch,
                f"`{name}={setting.value}` of `{setting.place.file}` is never passed: the script has `--{flag}`, and runs"
                " with its own default.",
                (setting.place,),
                {"sourced": name, "flag": f"--{flag}", "passed": sorted(passed)},
                f'Add `--{flag} "${name}"` to the command.',
            )


def _of_its_own(launch: Launch, script: Script, taken: Accepts, project: Project) -> Iterator[Finding]:
    """A variable that the launcher itself gives another value than the script's default, and that no command gets."""
    lines = project.texts.get(launch.file, "").split("\n")
    for number, line in enumerate(lines, 1):
        found = _SETS.match(line)
        name = found[1] if found is not None else ""
        flag = name.lower()
        default = script.constants.get(f"--{flag}") or script.constants.get(f"--{flag.replace('_', '-')}")
        if found is None or default is None or flag not in taken.flags or flag in launch.flags:
            continue
        value = _value(found[2])
        if value is None or value == plain(str(default.value)) or isinstance(default.value, Unknown | bool):
            continue
        if any(_uses(name, one) for at, one in enumerate(lines, 1) if at != number) or _in_the_environment(
            name, project
        ):
            continue
        yield _finding(
            launch,
            f"`{name}` is `{value}` in `{launch.file}`, and no command gets it: `{launch.script}` has `--{flag}`, and runs"
            f" with its default `{default.value}`.",
            (Place(launch.file, number), default.place),
            {"variable": name, "value": value, "default": default.value},
            f'Add `--{flag} "${name}"` to the command.',
        )


def _value(text: str) -> Any:
    """What an assignment comes to where nobody gives the variable; None: it is worked out."""
    text = text.split(" #")[0].strip().strip("\"'")
    whole = _OR.fullmatch(text)
    text = whole[1] if whole is not None else text
    return None if not text or "$" in text or "`" in text else plain(text)


def _uses(name: str, line: str) -> bool:
    """A line that does more with a variable than to show it or to make a name of it."""
    if not re.search(rf"\$\{{?{re.escape(name)}\b", line) or line.lstrip().startswith("#") or _SPEAKS.match(line):
        return False
    names = _SETS.match(line)
    return names is None or " -" in names[2] or names[2].lstrip("\"'").startswith("-")


def _taken_apart(launch: Launch, script: Script, taken: Accepts, project: Project) -> Iterator[Finding]:
    """A configuration that the launcher takes apart key by key has keys that are flags of the script, and are not read."""
    text = "\n".join(
        line for line in project.texts.get(launch.file, "").split("\n") if not line.lstrip().startswith("#")
    )
    if launch.file.endswith(".py"):
        if not _LOADS.search(text) or _ALL_KEYS.search(text) or _gets_the_file(launch):
            return
    else:
        files = set(_TAKES_APART.findall(text))
        command = re.sub(r"\$\([^()]*\)|\$\(\([^()]*\)\)", "", _command(launch, project))
        if not files or any(re.search(rf"\$\{{?{re.escape(name)}\b", command) for name in files):
            return
    words = set(re.findall(r"\w+", text))
    for config in project.configs:
        leaves = dict(_leaves(config.values))
        keys = {path.rpartition(".")[2]: value for path, value in leaves.items()}
        places = {path.rpartition(".")[2]: config.places.get(path, Place(config.file)) for path in leaves}
        read = words & keys.keys()
        left = {
            key: value
            for key, value in keys.items()
            if key not in words and key in taken.flags and key not in launch.flags
        }
        left = {key: value for key, value in left.items() if _differs(key, value, script)}
        if len(read) < 4 or 5 * len(read) < 3 * len(keys) or not left:
            continue
        shown = ", ".join(f"`{key}: {value}`" for key, value in list(left.items())[:3])
        last = max((flag.place.line for name, flag in launch.flags.items() if name in keys), default=launch.place.line)
        defaults = {key: script.constants[f"--{key}"] for key in left if f"--{key}" in script.constants}
        own = ", ".join(f"`{one.value}`" for one in list(defaults.values())[:3])
        yield _finding(
            launch,
            f"`{launch.file}` reads `{config.file}` key by key, and {shown} {'is' if len(left) == 1 else 'are'} not among"
            f" them: `{launch.script}` runs with its own default{'s' if len(left) > 1 else ''}"
            f"{f' ({own})' if len(defaults) == len(left) <= 3 else ''}.",
            (
                Place(launch.file, last),
                *(places[key] for key in left),
                *(one.place for one in defaults.values()),
            ),
            {"left behind": list(left), "read": len(read)},
            "Pass them on, or give the script the file.",
        )
        return


_LOADS = re.compile(r"\b(?:safe_load|full_load|yaml\.load|json\.load|loads|tomllib\.load|toml\.load|OmegaConf\.load)\(")
_ALL_KEYS = re.compile(
    r"(?-i:(?<![A-Z])\.(?:items|keys)\(\))|\*\*\w|\bvars\(|\.update\(|(?:dump|dumps|OmegaConf\.save)\("
    r"|\bfor \w+ in \w*(?:cfg|conf|config|params|opts|options|recipe|settings|hparams|exp|run|spec)\w*\s*[:\])]",
    re.IGNORECASE,
)
"""What may hand on all that a configuration holds, whatever it is called."""


def _gets_the_file(launch: Launch) -> bool:
    """The program may read the configuration itself: it gets a word that no flag takes, or a flag of a file."""
    if any(re.search(r"conf|cfg|yaml|json|recipe|file_args|params", name) for name in launch.flags):
        return True
    behind = list(launch.behind)
    return any(
        not word.startswith("-")
        and (number == 0 or not behind[number - 1].startswith("--") or "=" in behind[number - 1])
        for number, word in enumerate(behind)
    )


def _leaves(values: Mapping[Any, Any], prefix: str = "", deep: int = 0) -> Iterator[tuple[str, Any]]:
    """Of sections too, by their dotted names."""
    for key, value in values.items():
        if isinstance(value, Mapping) and deep < 2:
            yield from _leaves(value, f"{prefix}{key}.", deep + 1)
        else:
            yield f"{prefix}{key}", value


def _differs(key: str, value: Any, script: Script) -> bool:
    default = script.constants.get(f"--{key}")
    return value is not None and (default is None or default.value != value)


def _command(launch: Launch, project: Project) -> str:
    lines = project.texts.get(launch.file, "").split("\n")[launch.place.line - 1 : launch.place.end_line or None]
    return "\n".join(lines)


def _in_the_environment(name: str, project: Project) -> bool:
    return any(re.search(rf"['\"]{re.escape(name)}['\"]", script.source) for script in project.scripts)


def _finding(launch: Launch, said: str, also: tuple[Place, ...], facts: Mapping[str, Any], remedy: str) -> Finding:
    return Finding(
        said,
        place=launch.place,
        also=also,
        evidence=Evidence(Level.TEXT, facts),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(Risk.BEHAVIOURAL, remedy),
    )
