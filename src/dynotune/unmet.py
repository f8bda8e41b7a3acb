"""What installed packages ask of each other and do not get, by their own metadata."""

import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Unmet:
    """An installed package wants another in a version that is not the installed one."""

    package: str
    version: str
    wants: str
    """`nvidia-cutlass-dsl==4.6.0`"""

    there: str


def unmet(package: str) -> Iterator[Unmet]:
    """Requirements of `package` that the installed versions do not meet, its extras aside.

    What is not installed, be it `package` or what it requires, is not looked at: its import says so in better words.
    """
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import InvalidVersion

    version = _version(package)
    if version is None:
        return
    for text in importlib.metadata.requires(package) or ():
        try:
            wanted = Requirement(text)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
                continue
            there = _version(wanted.name)
            if there is not None and not wanted.specifier.contains(there, prereleases=True):
                yield Unmet(package, version, f"{wanted.name}{wanted.specifier}", there)
        except (InvalidRequirement, InvalidVersion):
            continue


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
