"""The packages that a project's own files ask for: requirements, images, and cells or scripts that install."""

import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from dynotune.audit.facts.project import Asked
from dynotune.audit.place import Place
from dynotune.audit.regular import leaves, start_of

_FILES = (
    "requirements*.txt",
    "requirements/*.txt",
    "Dockerfile*",
    "*.Dockerfile",
    "docker/Dockerfile*",
    "environment*.y*ml",
)
_MOST_BYTES = 1 << 18
_MOST_FILES = 20
_ONE = re.compile(r"([A-Za-z][\w.-]*)(?:\[[\w,\- ]*\])?(?:\s*(===?|~=|<=|>=|<|>|!=)\s*v?([0-9][\w.*]*))?")
_INSTALLS = re.compile(r"\b(?:pip3?|uv pip)\s+install\b(.*)")
_WITH_VALUE = frozenset({"-r", "-c", "-i", "-f", "-t", "--index-url", "--extra-index-url", "--find-links", "--target"})


def asked_packages(root: Path, texts: MutableMapping[str, str]) -> list[Asked]:
    """In the order of files. `texts`: what was read of the project, whose commands install too; gets what is read here."""
    found: list[Asked] = []
    read: dict[str, str] = {}
    for pattern in _FILES:
        for path in [
            path for path in sorted(root.glob(pattern))[:_MOST_FILES] if path.is_file() and not leaves(path, root)
        ]:
            file = path.relative_to(root).as_posix()
            try:
                text = start_of(path, _MOST_BYTES).decode("utf-8", "replace")
            except OSError:
                continue
            read[file] = text
            listed = path.suffix == ".txt" or path.suffix in (".yml", ".yaml")
            found += _listed(file, text) if listed else _installed(file, text)
    for file, text in texts.items():
        if "install" in text and not file.endswith((".json", ".yaml", ".yml")):
            found += _installed(file, text)
    for file, text in read.items():
        texts.setdefault(file, text)
    return found


def _listed(file: str, text: str) -> Iterator[Asked]:
    """One a line."""
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.partition("#")[0].strip().removeprefix("- ").strip()
        one = _ONE.match(bare)
        if one is not None and not bare.startswith("-") and not bare.endswith(":"):
            yield Asked(_name(one[1]), one[2] or "", one[3] or "", Place(file, number))


def _installed(file: str, text: str) -> Iterator[Asked]:
    """Behind `pip install`, over lines that go on."""
    going = False
    for number, line in enumerate(text.split("\n"), 1):
        begun = _INSTALLS.search(line)
        rest = begun[1] if begun else line if going else None
        if rest is None:
            continue
        going = rest.rstrip().endswith("\\")
        skip = False
        for word in re.split(r"&&|;|\|", rest)[0].rstrip().removesuffix("\\").split():
            one = _ONE.fullmatch(word.strip("'\""))
            if not skip and one is not None:
                yield Asked(_name(one[1]), one[2] or "", one[3] or "", Place(file, number))
            skip = word in _WITH_VALUE
        going = going and "&&" not in rest


def _name(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()
