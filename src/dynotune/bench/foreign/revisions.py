"""Two commits of the project in the current folder, each in a worktree and a virtual environment of its own.

Whoever measures stays the same: this program, of today. The environments see the packages that this program sees, so that
nothing large is installed twice; what `--setup` installs, and the worktree itself, come before them.
"""

import os
import shlex
import shutil
import site
import subprocess
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dynotune.bench.foreign.measure import Command
from dynotune.bench.foreign.process import run
from dynotune.bench.workers.hand import ArmFailedError
from dynotune.errors import ConfigError

Say = Callable[[str], None]


class Revision(NamedTuple):
    """A commit, as it was called."""

    called: str
    commit: str

    @property
    def name(self) -> str:
        return f"{self.called} ({self.commit[:7]})"


@contextmanager
def checked_out(
    revisions: Sequence[str], words: tuple[str, ...], setup: str | None, folder: Path, say: Say
) -> Iterator[tuple[tuple[Command, ...], list[str]]]:
    """The command at each revision, and what is to be said of them. Worktrees are gone behind it, however it is left.

    folder: in which they and their environments are made. setup: a command that is run once in each.
    Raises `ConfigError`.
    """
    found = resolved(revisions)
    top = Path(git("rev-parse", "--show-toplevel"))
    below = git("rev-parse", "--show-prefix")
    notes = []
    if git("status", "--porcelain", "--untracked-files=no"):
        notes.append("The working tree has changes that are in no commit: they were not measured.")
        say(notes[0])
    made: list[Path] = []
    try:
        arms = []
        for i, one in enumerate(found):
            tree = folder / f"tree-{i}"
            made.append(tree)
            say(f"{one.name}: checking out")
            git("-c", "core.hooksPath=/dev/null", "worktree", "add", "--detach", str(tree), one.commit, at=top)
            arms.append(_prepared(one, i, words, setup, tree, below, say))
        yield tuple(arms), notes
    finally:
        for tree in made:
            remove(tree, top, say)


def resolved(revisions: Sequence[str]) -> list[Revision]:
    """Two commits. The same name twice is an A/A; two names of one commit are taken for a mistake. Raises `ConfigError`."""
    if len(revisions) != 2:
        raise ConfigError("give `--rev` twice: `--rev main --rev HEAD`.")
    commits = [git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{one}^{{commit}}") for one in revisions]
    for called, commit in zip(revisions, commits, strict=True):
        if not commit:
            raise ConfigError(f"`--rev {called}`: there is no such commit in this repository.")
    (first, second), (a, b) = revisions, commits
    if a != b:
        return [Revision(first, a), Revision(second, b)]
    if first != second:
        raise ConfigError(
            f"`--rev {first}` and `--rev {second}` are the same commit, {a[:7]}: nothing differs. To see how far a commit is"
            f" from itself, give the same name twice: `--rev {first} --rev {first}`."
        )
    return [Revision(first, a), Revision(f"{first} again", b)]


def _prepared(
    one: Revision, number: int, words: tuple[str, ...], setup: str | None, tree: Path, below: str, say: Say
) -> Command:
    """The command in a worktree, behind what sets it up."""
    inside = tree / below
    if not inside.is_dir():
        raise ConfigError(f"{one.name} has no folder `{below}`, in which you are. Go to one that both commits have.")
    environment = _environment(tree, tree.with_name(f"environment-{number}"), with_pip=setup is not None)
    if setup is not None:
        say(f"{one.name}: {setup}")
        logs = [tree.with_name(f"setup-{number}.{which}.log") for which in ("out", "err")]
        try:
            run(shlex.split(setup), inside, {**os.environ, **environment}, logs[0], logs[1])
        except ArmFailedError as error:
            raise ConfigError(f"`--setup` at {one.name}: {error}") from error
    facts = {"commit": one.commit, **({"setup": setup} if setup else {})}
    return Command(one.name, words, inside, environment, facts)


def _environment(tree: Path, folder: Path, with_pip: bool) -> dict[str, str]:
    """Make a virtual environment; returns the variables under which it is used."""
    try:
        venv.create(folder, symlinks=os.name != "nt", with_pip=with_pip)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(
            f"no virtual environment can be made with this Python ({error}). On Debian and Ubuntu it needs the package"
            " python3-venv."
        ) from error
    own = Path(next(folder.glob("lib/python3*/site-packages")))
    # `system-site-packages` would show those of the Python below the environment in which this program lives.
    visible = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    lines = [f"import site; site.addsitedir({path!r})" for path in visible]
    (own / "of_the_harness.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    first = [str(tree / "src"), str(tree)]
    return {
        "VIRTUAL_ENV": str(folder),
        "PATH": os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": os.pathsep.join([*first, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


def remove(tree: Path, top: Path, say: Say) -> None:
    """A worktree and what git knows of it. One that was interrupted while it was made is half there."""
    program = _program()
    told = _ran([program, "worktree", "remove", "--force", "--force", str(tree)], top)
    if told.returncode and tree.exists():
        shutil.rmtree(tree, ignore_errors=True)
    if told.returncode:
        _ran([program, "worktree", "prune"], top)
    if tree.exists():
        say(f"{tree} could not be removed: {told.stderr.strip()}")


def git(*words: str, at: Path | None = None) -> str:
    """What git prints; of `rev-parse --verify` nothing where there is no such commit. Raises `ConfigError`."""
    told = _ran([_program(), *words], at)
    if told.returncode and "--verify" not in words:
        last = told.stderr.strip().rpartition("\n")[2]
        raise ConfigError(f"`git {shlex.join(words)}` failed: {last}. `--rev` needs a project in git.")
    return told.stdout.strip()


def _program() -> str:
    found = shutil.which("git")
    if found is None:
        raise ConfigError("`--rev` needs git, and there is no `git` in the path.")
    return found


def _ran(words: Sequence[str], at: Path | None) -> subprocess.CompletedProcess[str]:
    # In a session of its own: Ctrl-C reaches all processes of a terminal, and would end git while it cleans up.
    return subprocess.run(words, cwd=at, capture_output=True, text=True, check=False, start_new_session=True)  # noqa: S603
