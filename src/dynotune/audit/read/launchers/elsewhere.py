"""Commands outside of shell scripts: in documents that tell people what to type, in images that run one, in cells of
notebooks, and in YAML files of services and jobs (Compose, Kubernetes, SkyPilot)."""

import json
import posixpath
import re
import shlex
from collections.abc import Mapping
from types import MappingProxyType

_FENCE = re.compile(r"^\s*(?:```|~~~)\s*(\w*)")
_SHELLS = frozenset({"", "bash", "sh", "shell", "zsh", "console", "text"})
_FORM = re.compile(r"<[A-Za-z][\w ./-]*>|\.\.\.|\s\[-|\{[a-z_]+\}")
"""Of a command that shows how one is made, and is none."""

_STANDS_IN = re.compile(r"""["']?[^\s"']*(?:path/to|/your/|YOUR_|your_)[^\s"']*["']?""")
"""A word for which the reader is to write another."""

_BEGINS = re.compile(
    r"(?:\$ )?(?:[A-Z_]+=\S* )*(?:python3? \S+\.py|python3? -m \S+|torchrun|accelerate launch|deepspeed)\s"
)
"""A line that is a command without being set apart."""

_RUNS = re.compile(r"^\s*(CMD|ENTRYPOINT)\s+(\S.*)$", re.IGNORECASE)


def commands_of_document(text: str) -> str:
    """The text with everything but its commands left empty, line by line: blocks of a shell, lines that stand in by four,
    and those that begin as commands do."""
    kept: list[str] = []
    fence: str | None = None
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if found is not None:
            fence = found[1].lower() if fence is None else None
            kept.append("")
            continue
        alone = line.startswith(("    ", "\t")) or _BEGINS.match(line) is not None
        code = fence in _SHELLS if fence is not None else alone
        bare = re.sub(r"^\s*(?:[$>]\s)?", "", line)
        kept.append(_STANDS_IN.sub("$STANDS_IN", bare) if code else "")
    return "\n".join(_without_forms(kept))


def _without_forms(lines: list[str]) -> list[str]:
    """What shows how a command is made is left out to its last line: of its beginning, flags would be missing."""
    kept, begun = list[str](), 0
    for number, line in enumerate(lines):
        if line.rstrip().endswith("\\"):
            continue
        command = lines[begun : number + 1]
        kept += [""] * len(command) if any(_FORM.search(one) for one in command) else command
        begun = number + 1
    return kept + lines[begun:]


_VARIABLE = re.compile(r"""(?<![\w])([A-Z][A-Z0-9_]*)=["']?([\w.:/,-]+)["']?(?=\s|$)""")
_ENV = re.compile(r"^\s*ENV\s+(\S.*)$", re.IGNORECASE)
_OLD_ENV = re.compile(r"^([A-Z][A-Z0-9_]*)\s+([\w.:/,-]+)\s*$")


def _variables_of_image(lines: list[str]) -> str:
    """What `ENV` sets, as it stands in front of a command."""
    held = [found[1] for line in lines if (found := _ENV.match(line)) is not None]
    return " ".join(f"{name}={value}" for one in held for name, value in _VARIABLE.findall(_OLD_ENV.sub(r"\1=\2", one)))


def commands_of_image(text: str) -> str:
    """The same of a Dockerfile: what its container runs. `CMD` behind a list of `ENTRYPOINT` is its arguments."""
    lines = text.replace("\\\n", "  \n").split("\n")
    kept = ["" for _ in lines]
    entry, variables = "", _variables_of_image(lines)
    for number, line in enumerate(lines):
        found = _RUNS.match(line)
        if found is None:
            continue
        listed = _listed(found[2])
        command = shlex.join(listed) if listed is not None else found[2]
        if found[1].upper() == "ENTRYPOINT":
            entry = command if listed is not None else ""
            kept[number] = command
        else:
            kept = ["" for _ in lines] if entry else kept
            kept[number] = f"{entry} {command}".strip()
    copied = _copied(lines)
    kept = [_of_the_project(line, copied) for line in kept]
    return "\n".join(f"{variables} {line}" if line and variables else line for line in kept)


_COPY = re.compile(r"^\s*(?:COPY|ADD)\s+(?!.*--from=)((?:--\S+\s+)*)(\S.*?)\s*$", re.IGNORECASE)
_WORKDIR = re.compile(r"^\s*WORKDIR\s+(\S+)", re.IGNORECASE)


def _copied(lines: list[str]) -> dict[str, str]:
    """Where the image has the project's files: its paths, and what was copied there (empty: the folder itself)."""
    found: dict[str, str] = {}
    here = "/"
    for line in lines:
        if (folder := _WORKDIR.match(line)) is not None:
            here = posixpath.normpath(posixpath.join(here, folder[1]))
        copy = _COPY.match(line)
        words = (_listed(copy[2]) or copy[2].split()) if copy is not None else []
        if len(words) < 2:
            continue
        *sources, there = words
        into = posixpath.normpath(posixpath.join(here, there))
        for source in sources:
            name = posixpath.normpath(source).removeprefix("/")
            name = posixpath.dirname(name) or "." if "*" in name else name
            is_file = "." in posixpath.basename(name) and name != "."
            renamed = is_file and len(sources) == 1 and not there.endswith("/") and "." in posixpath.basename(into)
            place = posixpath.join(into, posixpath.basename(name)) if is_file and not renamed else into
            found[place] = "" if name == "." else name
    return found


def _of_the_project(command: str, copied: dict[str, str]) -> str:
    """With the paths of an image as the project has them."""
    for there in sorted(copied, key=len, reverse=True):
        if there == "/" or there not in command:
            continue
        source = copied[there]
        of_folder = rf"(?<![\w./-]){re.escape(there)}/"
        command = re.sub(of_folder, f"{source}/" if source else "", command)
        command = re.sub(rf"(?<![\w./-]){re.escape(there)}(?=[\s'\"]|$)", source or ".", command)
    return command


_BUILD = re.compile(r"^(\s+)build:\s*(\S*)\s*$")
_PART_OF_BUILD = re.compile(r"^\s*(context|dockerfile):\s*[\"']?([\w./-]+)[\"']?\s*$")


def commands_of_built(text: str, images: Mapping[str, str]) -> tuple[str, frozenset[str]]:
    """The same of services that run what the image runs which they build here: each command in the line of `build`, with the
    service's variables; and the files that make those images. images: what each file's container runs."""
    lines = text.split("\n")
    kept, taken = ["" for _ in lines], set[str]()
    for number, line in enumerate(lines):
        found = _BUILD.match(line)
        if found is None:
            continue
        indent, parts = len(found[1]), {"context": found[2].strip("\"'") or ".", "dockerfile": "Dockerfile"}
        for one in _block(lines, number + 1, indent):
            if (part := _PART_OF_BUILD.match(lines[one])) is not None:
                parts[part[1]] = part[2]
        file = posixpath.normpath(posixpath.join(parts["context"], parts["dockerfile"]))
        runs = [one for one in images.get(file, "").split("\n") if one.strip()]
        own = any(
            _indent(lines[one]) == indent and _OWN_COMMAND.match(lines[one]) for one in _beside(lines, number, indent)
        )
        if runs and not own:
            kept[number] = f"{_variables_of_service(lines, number, indent)} {runs[-1]}".strip()
            taken.add(file)
    return "\n".join(kept), frozenset(taken)


_OWN_COMMAND = re.compile(r"\s+(?:command|entrypoint):")

_MAGIC = re.compile(r"^\s*(?:pass  )?# ?(?:!|%sx )\s*(\S.*)$")
_SHELL_CELL = re.compile(r"^# ?%%(?:bash|sh|shell|script bash)\b")


def commands_of_notebook(source: str, mark: str) -> str:
    """The same of a notebook's code, as it was read: lines for the shell, and cells under `%%bash`. mark: what begins each
    cell. `{name}` of Python is a variable."""
    kept: list[str] = []
    in_cell, goes_on = False, False
    for line in source.split("\n"):
        if line.startswith(mark):
            in_cell = goes_on = False
        found = _MAGIC.match(line)
        if _SHELL_CELL.match(line):
            in_cell = True
            kept.append("")
        elif in_cell and line.startswith("# "):
            kept.append(line[2:])
        elif found is not None or goes_on:
            text = found[1] if found is not None else re.sub(r"^\s*#? ?", "", line)
            kept.append(re.sub(r"(?<!\$)\{(\w+)\}", r"${\1}", text))
            goes_on = text.rstrip().endswith("\\")
        else:
            kept.append("")
    return "\n".join(kept)


_SETS = re.compile(r"""^\s*(?:-\s*)?["']?([A-Z][A-Z0-9_]*)["']?\s*[:=]\s*["']?([\w.:/,-]+)["']?\s*(?:#.*)?$""")


def _variables_of_service(
    lines: list[str], number: int, indent: int, files: Mapping[str, str] = MappingProxyType({})
) -> str:
    """What the `environment` and the `env_file` beside a service's command set, as it stands in front of one."""
    told = ""
    for at in _beside(lines, number, indent):
        named = re.fullmatch(
            rf"\s{{{indent}}}env_file:\s*\[?\s*(?:-\s*)?[\"']?(?:\./)?([\w./-]+)[\"']?\s*\]?", lines[at]
        )
        if named is not None:
            pairs = [_SETS.match(line) for line in files.get(named[1], "").split("\n")]
            told += "".join(f"{one[1]}={one[2]} " for one in pairs if one is not None)
    for at in _beside(lines, number, indent):
        if re.fullmatch(rf"\s{{{indent}}}environment:\s*", lines[at]):
            found = [_SETS.match(lines[one]) for one in _block(lines, at + 1, indent)]
            return told + " ".join(f"{one[1]}={one[2]}" for one in found if one is not None)
    return told.strip()


def _beside(lines: list[str], number: int, indent: int) -> range:
    """The lines of the mapping whose key stands in this line."""
    first, last = number, number
    while first > 0 and (not lines[first - 1].strip() or _indent(lines[first - 1]) >= indent):
        first -= 1
    while last + 1 < len(lines) and (not lines[last + 1].strip() or _indent(lines[last + 1]) >= indent):
        last += 1
    return range(first, last + 1)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


_KEY = re.compile(r"^(\s*)(?:- )?(command|entrypoint|args|run|script|cmd):\s*(.*?)\s*$")
_SHELL_OF_A_STRING = re.compile(r"^(?:/\S*/)?(?:ba|z)?sh\s+-\w*c\w*\s+(.*)$", re.DOTALL)
_OF_SERVICES = re.compile(r"^(?:services|apiVersion|resources):", re.MULTILINE)


def is_of_services(name: str, text: str) -> bool:
    """A Compose file, a manifest of Kubernetes, or a task of SkyPilot."""
    return bool(name.lower().endswith((".yml", ".yaml")) and _OF_SERVICES.search(text))


def commands_of_services(text: str, files: Mapping[str, str] = MappingProxyType({})) -> str:
    """files: of variables (`env_file`), by their names in the folder. The text with everything but what its services
    run left empty, line by line. Of a list each entry stays in its line; `command` or `args` behind a list of
    `entrypoint` or `command` is its arguments."""
    lines = text.split("\n")
    kept = ["" for _ in lines]
    entry, entry_key, entry_indent = "", "", 0
    for number, line in enumerate(lines):
        if line.strip() and len(line) - len(line.lstrip()) < entry_indent:
            entry = ""  # another service
        found = _KEY.match(line)
        if found is None:
            continue
        indent, key, value = len(found[1]), found[2], found[3].partition(" #")[0].strip()
        block = _block(lines, number + 1, indent)
        words = _entries(value, [lines[one].strip() for one in block])
        if value[:1] in ("|", ">"):
            for one in block:
                kept[one] = lines[one].strip() + (" \\" if value[0] == ">" and one != block[-1] else "")
            continue
        if words is None:
            command = _unquoted(value)
            inner = _SHELL_OF_A_STRING.match(command)
            command = _unquoted(inner[1].strip()) if inner is not None else command
        else:
            command = shlex.join(words)
            inner = _SHELL_OF_A_STRING.match(command)
            command = words[-1] if inner is not None and len(words) == 3 else command
        if key == "entrypoint" or (key == "command" and words is not None):
            before = entry if entry_key == "entrypoint" and key == "command" else ""
            entry, entry_key, entry_indent = (command if words is not None else ""), key, indent
        else:
            before = entry if (entry_key, key) in (("entrypoint", "command"), ("command", "args")) else ""
        variables = _variables_of_service(lines, number, indent, files) if key in ("command", "entrypoint") else ""
        for line_of_it, part in enumerate(f"{before} {command}".strip().split("\n")):
            at = number + line_of_it
            if variables and part and not line_of_it:  # each command of the line has them
                behind = re.split(r"(&&|;) *(?=[^ ])", part)
                part = "".join(f"{one} " if one in ("&&", ";") else f"{variables} {one}" for one in behind)
            if at < len(kept):
                kept[at] = part
    return _by_mounts("\n".join(kept), text)


_MOUNT = re.compile(r"^\s*-\s*[\"']?(\.(?:/[\w.-]+)*)/?:(/[\w./-]+?)/?(?::\w+)?[\"']?\s*(?:#.*)?$", re.MULTILINE)


def _by_mounts(commands: str, text: str) -> str:
    """Paths of the container as the project has them: `/app/train.py` under `./app:/app`."""
    for here, there in sorted(set(_MOUNT.findall(text)), key=lambda one: -len(one[1])):
        own = here.removeprefix(".").lstrip("/")
        commands = re.sub(rf"(?<![\w./-]){re.escape(there)}/", f"{own}/" if own else "", commands)
    return commands


def _block(lines: list[str], start: int, indent: int) -> list[int]:
    """Lines that stand further in, or are entries of a list at the key's own indentation."""
    found: list[int] = []
    for number in range(start, len(lines)):
        line = lines[number]
        deeper = len(line) - len(line.lstrip())
        if line.strip() and deeper <= indent and not (deeper == indent and line.lstrip().startswith("- ")):
            break
        if line.strip():
            found.append(number)
    return found


def _entries(value: str, block: list[str]) -> list[str] | None:
    """Of a list, in brackets or an entry a line; None: it is no list."""
    if value.startswith("["):
        whole = " ".join([value, *block]) if not value.endswith("]") else value
        return [_unquoted(one.strip()) for one in re.findall(r"\"[^\"]*\"|'[^']*'|[^,\[\]]+", whole) if one.strip()]
    if value or not block or not all(one.startswith("- ") for one in block):
        return None
    return [_unquoted(one[2:].strip()) for one in block]


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _listed(text: str) -> list[str] | None:
    try:
        found = json.loads(text) if text.lstrip().startswith("[") else None
    except ValueError:
        return None
    return found if isinstance(found, list) and all(isinstance(one, str) for one in found) else None
