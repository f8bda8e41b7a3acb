"""A wheel, an extra or a Python that goes with another PyTorch than the project asks for."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from dynotune.audit.facts.project import Asked, Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.schema.keys import earlier

_WHEEL = re.compile(r"(?<![\w-])(\w+)-\d[\w.]*\+cu\d+torch(\d+\.\d+)(?:cxx11abi|-cp|\.)")
"""`flash_attn-2.7.4.post1+cu12torch2.5cxx11abiFALSE-cp311-cp311-linux_x86_64.whl`."""

_EXTRA = re.compile(r"cu\d+(?:-\w+)?-torch(\d)(\d{1,2})\d")
"""`unsloth[cu121-torch230]`."""

_PYTHON = re.compile(
    r"^FROM\s+(?:\S+/)?python:(3\.\d+)|\bpython==?(3\.\d+)|\bpython(3\.\d+)\s+-m\s+venv"
    r"|\bvenv\b.*--python[ =](?:python)?(3\.\d+)",
    re.MULTILINE,
)
_FIRST: Mapping[tuple[str, str], str] = {
    ("torch", "3.11"): "1.13",
    ("torch", "3.12"): "2.2",
    ("torch", "3.13"): "2.5",
    ("numpy", "3.12"): "1.26",
}
"""The first release that has wheels for a Python: tags of the files on PyPI."""


def built_for_another(
    pinned: Sequence[Asked], project: Project, together: Callable[[Asked, Asked], bool]
) -> Iterator[Said]:
    torches = [one for one in pinned if one.name == "torch"]
    for file, text in {**project.documents, **project.texts}.items():
        for torch in torches:
            for number, line in enumerate(text.split("\n"), 1) if "+cu" in text else ():
                wheel = None if line.lstrip().startswith("#") else _WHEEL.search(line)
                here = Asked(wheel[1], "", "", Place(file, number)) if wheel else None
                if wheel and here and not torch.version.startswith(f"{wheel[2]}.") and together(here, torch):
                    yield _of(torch, here, f"the wheel of {wheel[1]} is built for torch {wheel[2]}")
        pythons = {next(one for one in found if one) for found in _PYTHON.findall(text)} if "ython" in text else set()
        if len(pythons) != 1:
            continue
        (python,) = pythons
        found = _PYTHON.search(text)
        row = text.count("\n", 0, found.start()) + 1 if found else 1
        for one in pinned:
            first, here = _FIRST.get((one.name, python)), Asked("python", "==", python, Place(file, row))
            if first is not None and earlier(one.version, first) and together(here, one):
                yield _of(one, here, f"it has no wheels for Python {python} ({one.name} {first} is the first that has)")
    for one in project.asked:
        built = next((found for extra in one.extras if (found := _EXTRA.fullmatch(extra))), None)
        for torch in torches if built else ():
            if built and not torch.version.startswith(f"{built[1]}.{built[2]}.") and together(one, torch):
                yield _of(torch, one, f"the extra of {one.name} is built for torch {built[1]}.{built[2]}")


def _of(one: Asked, other: Asked, why: str) -> Finding:
    return Finding(
        f"{one.name} {one.version} does not go with what stands beside it: {why}.",
        place=one.place,
        evidence=Evidence(Level.TEXT, {one.name: one.version, "why": why}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(Risk.OPERATIONAL, "Ask for builds that go together.", effort=Effort.MINUTES),
        also=(other.place,),
    )
