"""The packages that a project's own files ask for: requirements, images, and cells or scripts that install."""

import re
import tomllib
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path

from dynotune.audit.facts.project import Asked
from dynotune.audit.place import Place
from dynotune.audit.regular import leaves, start_of
from dynotune.audit.schema.releases_told import releases_told

_FILES = (
    "requirements*.txt",
    "requirements/*.txt",
    "*/requirements.txt",
    "constraints*.txt",
    "Dockerfile*",
    "*.Dockerfile",
    "docker/Dockerfile*",
    "environment*.y*ml",
    "pyproject.toml",
)
_LISTS = frozenset({".txt", ".yml", ".yaml"})
_MOST_BYTES = 1 << 18
_MOST_FILES = 20
_ONE = re.compile(r"([A-Za-z][\w.-]*)(?:\[([\w,.\- ]*)\])?(?:\s*(===?|~=|<=|>=|<|>|!=)\s*v?([0-9][\w.*]*))?")
"""Name, extras, operator, version."""
_OF_CONDA = re.compile(r"(?<![=<>!~])=(?==?\d)(?!=)")
"""conda's `transformers=4.40`, which pins as `==` does."""
_INSTALLS = re.compile(
    r"(?:\b(?:pip3?|uv pip)|\$[({]\w*PIP3?[)}]|(?<=[\s@])\$\w*PIP3?)\s+install\b(.*)"
    r"|\b(?:uv|poetry|pdm) add\b(.*)|\b(?:conda|mamba|micromamba) install\b(.*)"
)
"""By its name, or by a variable that is called so (`$(PIP) install` of a Makefile)."""

_WITH_VALUE = frozenset({"-r", "-c", "-i", "-f", "-t", "--index-url", "--extra-index-url", "--find-links", "--target"})


def asked_packages(
    root: Path, texts: MutableMapping[str, str], documents: Mapping[str, str] | None = None
) -> list[Asked]:
    """In the order of files. `texts`: what was read of the project, whose commands install too; gets what is read here.
    `documents`: the same of what tells people how to install it."""
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
            by = _declared if path.suffix == ".toml" else _listed if path.suffix in _LISTS else _installed
            found += by(file, text)
    for file, text in texts.items():
        found += _of_estimators(file, text) if file.endswith((".py", ".ipynb")) and "sagemaker" in text else ()
        if "install" in text and not file.endswith((".json", ".yaml", ".yml")):
            found += _installed(file, text)
    for file, text in (documents or {}).items():
        found += _installed(file, text)
    asked = {one.name for one in found if one.operator}
    for file, text in {**texts, **read, **(documents or {})}.items():
        for name, release, line in releases_told(file, text):
            if name not in asked:
                found.append(Asked(name, "==", release, Place(file, line)))
    for file, text in read.items():
        texts.setdefault(file, text)
    return found


_ESTIMATOR = re.compile(r"\b(transformers|pytorch)_version\s*=\s*[\"'](\d+(?:\.\d+)*)[\"']")
"""What an estimator of SageMaker chooses its image by."""


def _of_estimators(file: str, text: str) -> Iterator[Asked]:
    for number, line in enumerate(text.split("\n"), 1):
        for name, version in _ESTIMATOR.findall(line):
            yield Asked({"pytorch": "torch"}.get(name, name), "==", version, Place(file, number))


def _listed(file: str, text: str) -> Iterator[Asked]:
    """One a line."""
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.partition("#")[0].strip().removeprefix("- ").strip()
        if file.endswith((".yml", ".yaml")):
            bare = _OF_CONDA.sub("==", bare, count=1)
        one = _ONE.match(bare)
        if one is not None and not bare.startswith("-") and not bare.endswith(":"):
            yield _asked(one, Place(file, number))


def _declared(file: str, text: str) -> Iterator[Asked]:
    """Of `[project]`, with all its optional ones: which of them are installed cannot be told. A file that is broken, or of
    a tool alone, asks for nothing."""
    try:
        project = tomllib.loads(text).get("project", {})
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    if not isinstance(project, dict):
        return
    optional = project.get("optional-dependencies", {})
    lists = [project.get("dependencies"), *(optional.values() if isinstance(optional, dict) else ())]
    wanted = [one for held in lists if isinstance(held, list) for one in held if isinstance(one, str)]
    lines = text.split("\n")
    for one in wanted:
        found = _ONE.match(one.strip())
        if found is not None:
            yield _asked(found, Place(file, next((at for at, line in enumerate(lines, 1) if one in line), 0)))


def _installed(file: str, text: str) -> Iterator[Asked]:
    """Behind `pip install`, over lines that go on."""
    going = False
    for number, line in enumerate(text.split("\n"), 1):
        begun = _INSTALLS.search(line)
        rest = next(one for one in begun.groups() if one is not None) if begun else line if going else None
        if rest is None:
            continue
        going = rest.rstrip().endswith("\\")
        skip = False
        rest = re.split(r"(?:^|\s)#", rest)[0]  # what a comment says is asked for by nobody
        for word in re.split(r"&&|;|\||`", rest)[0].rstrip().removesuffix("\\").split():
            one = _ONE.fullmatch(word.strip("'\""))
            if not skip and one is not None:
                yield _asked(one, Place(file, number))
            skip = word in _WITH_VALUE
        going = going and "&&" not in rest


def _asked(one: re.Match[str], place: Place) -> Asked:
    extras = tuple(_name(extra.strip()) for extra in (one[2] or "").split(",") if extra.strip())
    return Asked(_name(one[1]), one[3] or "", one[4] or "", place, extras)


def _name(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()
