"""Configurations that a launcher gets from whoever calls it: `axolotl train "$1"`, and a document that says
`./launch.sh configs/a.yml`."""

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping

from dynotune.audit.facts.launch import Launch

_BARE = re.compile(r"\$\{(\d)(?::?[?=-][^}]*)?\}$")
"""`$1`, `${1}`, `${1:?a configuration}`: nothing of the path stands in the launcher."""

_RUNS_IMAGE = re.compile(r"\b(?:docker|podman|apptainer|singularity)\s+run\b")
_ENTRY = re.compile(r"^\s*ENTRYPOINT\b[^\n]*", re.MULTILINE | re.IGNORECASE)


def handed_to(launch: Launch, texts: Mapping[str, str], configs: Collection[str]) -> list[str]:
    """Names of the configurations that the project's texts hand to the launcher at the place where its command takes one:
    the only one there is of these `configs`, where no text does."""
    bare = next((found for word in launch.behind if (found := _BARE.match(word)) is not None), None)
    if bare is None or not configs:
        return []
    first = int(bare[1]) - 1
    named = dict.fromkeys(
        name
        for words in _calls(launch.file.rpartition("/")[2], texts)
        for word in words[first:]  # flags may stand before it
        for name in configs
        if _is_named(word, name)
    )
    return list(named) or (list(configs) if len(configs) == 1 else [])


def _is_named(word: str, name: str) -> bool:
    path = posixpath.normpath(word.strip("\"'`,[]()"))
    return path == name or (len(path) > 4 and name.endswith(f"/{path}"))


def _calls(launcher: str, texts: Mapping[str, str]) -> Iterator[list[str]]:
    """Words behind its name, wherever a line calls it or runs the image that begins with it."""
    call = re.compile(rf"(?<![\w-]){re.escape(launcher)}[\"'`]?[ \t]+([^\n|;&>]*)")
    is_entry = any(launcher in found[0] for text in texts.values() for found in _ENTRY.finditer(text))
    for text in texts.values():
        if launcher not in text and not is_entry:
            continue
        for line in text.replace("\\\n", " ").split("\n"):
            yield from (found[1].split() for found in call.finditer(line))
            if is_entry and (image := _RUNS_IMAGE.search(line)) is not None:
                yield line[image.end() :].split()
