"""The version of a source tree, from its files: the release that it says it is, and its own commit."""

import re
from pathlib import Path

from dynotune.audit.regular import start_of

_VERSION = re.compile(r"""^\s*(?:__version__|VERSION|version)\s*=\s*["']([^"']{1,40})["']""", re.MULTILINE)
_HASH = re.compile(r"[0-9a-f]{40,64}")
_LONGEST = 1 << 16


def version_of_source(package: Path) -> str:
    """As `1.17.0.dev0 at 3f2c9ab01d22`; whatever of it can be found."""
    tops = [folder for folder in (package, package.parent, package.parent.parent) if folder.is_dir()]
    release = next((found for top in tops if (found := _release(top))), "")
    commit = next((found for top in tops if (found := commit_of(top))), "")
    return " at ".join(part for part in (release, commit[:12]) if part)


def _release(top: Path) -> str:
    plain = _start(top / "VERSION").strip()
    if plain and len(plain) < 40 and "\n" not in plain:
        return plain
    for name in ("__init__.py", "_version.py", "version.py", "pyproject.toml", "setup.py"):
        if found := _VERSION.search(_start(top / name)):
            return found[1]
    return ""


def commit_of(top: Path) -> str:
    """The commit that a checkout stands at, read from its `.git`; empty where there is none."""
    git = top / ".git"
    if git.is_file():  # a submodule or a worktree
        git = (top / _start(git).partition("gitdir:")[2].strip()).resolve()
    head = _start(git / "HEAD").strip()
    if _HASH.fullmatch(head):
        return head
    name = head.partition("ref:")[2].strip()
    if not name or ".." in name:
        return ""
    common = _start(git / "commondir").strip()
    homes = [git, (git / common).resolve()] if common else [git]
    for home in homes:
        loose = _start(home / name).strip()
        if _HASH.fullmatch(loose):
            return loose
        for line in _start(home / "packed-refs", 1 << 20).splitlines():
            if line.endswith(f" {name}") and _HASH.fullmatch(line.split(" ")[0]):
                return line.split(" ")[0]
    return ""


def _start(path: Path, longest: int = _LONGEST) -> str:
    try:
        return start_of(path, longest).decode("utf-8", "replace")
    except OSError:
        return ""
