"""Which scripts of a project import from which, looked up once for a project: some forty rules ask it of every script."""

import functools
from collections.abc import Callable, Sequence, Set

from dynotune.audit.facts.script import Script

MOST = 200
"""Scripts that belong to one program; a repository of more is many programs that share a library."""

_LIBRARIES = frozenset({"torch", "torchvision", "transformers", "datasets", "numpy", "tqdm", "xformers"})
"""Whose modules are in no project: `torch.utils.data` is neither its `utils.py` nor its `data.py`."""


class Imports:
    """By the names that imports are made of: `from .data import rows` may lead to each `data.py`. Nothing is looked up until
    it is asked for, and scripts stand in the project's order."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self._scripts = scripts
        self._programs: dict[str, Sequence[Script]] = {}

    def of(self, script: Script) -> list[Script]:
        """The others that this one imports from."""
        return self._in_order(script, self._named.keys() & parts(script), self._named)

    def users(self, script: Script) -> list[Script]:
        """The others that import from this one."""
        return self._in_order(script, {name(script)}, self._using)

    def reached(self, start: Sequence[Script]) -> Sequence[Script]:
        """These, and what is loaded with them, however far."""
        return _closure(start, self.of)

    def program(self, script: Script) -> Sequence[Script]:
        """The script, whatever imports it, however far, and whatever these import."""
        if script.file not in self._programs:
            self._programs[script.file] = self.reached(_closure([script], self.users))
        return self._programs[script.file]

    @functools.cached_property
    def stems(self) -> frozenset[str]:
        """Names of files and of folders."""
        return frozenset(part for one in self._scripts for part in one.file.removesuffix(".py").split("/"))

    @functools.cached_property
    def _named(self) -> dict[str, list[int]]:
        return _index([{name(one)} for one in self._scripts])

    @functools.cached_property
    def _using(self) -> dict[str, list[int]]:
        return _index([parts(one) for one in self._scripts])

    def _in_order(self, script: Script, asked: Set[str], index: dict[str, list[int]]) -> list[Script]:
        places = sorted({place for one in asked for place in index.get(one, ())})
        return [self._scripts[place] for place in places if self._scripts[place].file != script.file]


def name(script: Script) -> str:
    """What imports call it: of a package's own file, the folder's name."""
    folder, _, last = script.file.rpartition("/")
    stem = last.removesuffix(".py")
    return folder.rpartition("/")[2] if stem == "__init__" and folder else stem


def parts(script: Script) -> frozenset[str]:
    """The names that its imports are made of."""
    return _parts(tuple(script.imports.values()), script.file)


@functools.lru_cache(maxsize=4096)
def _parts(imports: tuple[str, ...], file: str) -> frozenset[str]:
    """`from . import NAME` leads to the package that the file stands in, or to a module of it."""
    split = [dotted.lstrip(".").split(".") for dotted in imports if dotted.partition(".")[0] not in _LIBRARIES]
    packages = {
        _package(dotted, file) for dotted in imports if dotted.startswith(".") and "." not in dotted.lstrip(".")
    }
    return frozenset(part for parts_of_one in split for part in parts_of_one) | (packages - {""})


def _package(dotted: str, file: str) -> str:
    """The folder that the dots before a name stand for."""
    folders = file.split("/")[:-1]
    dots = len(dotted) - len(dotted.lstrip("."))
    return folders[-dots] if dots <= len(folders) else ""


def _index(names: Sequence[Set[str]]) -> dict[str, list[int]]:
    """Places in a sequence by the names that stand there."""
    found: dict[str, list[int]] = {}
    for place, here in enumerate(names):
        for one in here:
            found.setdefault(one, []).append(place)
    return found


def _closure(start: Sequence[Script], leads: Callable[[Script], list[Script]]) -> Sequence[Script]:
    found = {one.file: one for one in start}
    frontier = list(start)
    while frontier and len(found) < MOST:
        new = [one for one in leads(frontier.pop()) if one.file not in found]
        found |= {one.file: one for one in new}
        frontier += new
    return tuple(found.values())
