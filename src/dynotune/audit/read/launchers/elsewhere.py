"""Commands outside of shell scripts: in documents that tell people what to type, and in images that run one."""

import json
import re
import shlex

_FENCE = re.compile(r"^\s*(?:```|~~~)\s*(\w*)")
_SHELLS = frozenset({"", "bash", "sh", "shell", "zsh", "console", "text"})
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w ./-]*>|\.\.\.|\s\[-|\{[a-z_]+\}|path/to|/your/|YOUR_|your_")
"""Of a command that shows how one is made, and is none."""

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
        kept.append("" if not code or _PLACEHOLDER.search(line) else bare)
    return "\n".join(kept)


def commands_of_image(text: str) -> str:
    """The same of a Dockerfile: what its container runs. `CMD` behind a list of `ENTRYPOINT` is its arguments."""
    lines = text.replace("\\\n", "  \n").split("\n")
    kept = ["" for _ in lines]
    entry = ""
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
    return "\n".join(kept)


def _listed(text: str) -> list[str] | None:
    try:
        found = json.loads(text) if text.lstrip().startswith("[") else None
    except ValueError:
        return None
    return found if isinstance(found, list) and all(isinstance(one, str) for one in found) else None
