"""What this machine remembers of speed-ups: what failed, what was tried and checked.

A file for each machine with its versions (`machines/KEY.json` in Dynotune's cache folder), written whole or not at all, to
which any number of runs and ranks add at the same time. What cannot be kept is known to this process alone, and said.
"""

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from filelock import FileLock, Timeout

from dynotune.cache_folder import cache_folder
from dynotune.printable import printable
from dynotune.speedups.contract import Context, No, Speedup
from dynotune.speedups.machine import Machine, installed_as, machine_of

if TYPE_CHECKING:
    import torch

FORMAT = 1
"""Number of the file's format. A file of another number is begun anew."""

LARGEST = 1 << 24
"""Bytes of a file that is read."""

MOST = 1000
"""Entries of a kind. The oldest go."""

LOCK_SECONDS = 10
"""Longer nobody holds the lock, who is alive: a write takes milliseconds."""

KINDS = ("failures", "trials", "checks")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Failure:
    """A speed-up whose proof failed here, or that could not be installed."""

    reason: str
    evidence: str = ""
    """What was seen instead."""

    date: str = ""


@dataclass(slots=True)
class _Entry:
    value: dict[str, Any]
    date: str
    packages: dict[str, str | None] = field(default_factory=dict)
    """Packages as they were installed then. With others the entry says nothing."""

    def holds(self) -> bool:
        return all(installed_as(name) == was for name, was in self.packages.items())


_Entries = dict[str, dict[str, _Entry]]


class Remembered:
    """What one machine remembers. Read once; what is kept goes to the file at once."""

    def __init__(self, machine: Machine, folder: Path | None, say: Say) -> None:
        """folder: where the file lies; None: in memory only."""
        self.machine, self.say = machine, say
        self.path = None if folder is None else folder / f"{machine.key}.json"
        self._entries = self._read()

    @classmethod
    def here(cls, device: "torch.device | str", say: Say | None = None) -> Self:
        """What this machine remembers with `device`. say: prints a line; default: on stderr."""
        return cls(machine_of(device), machines_folder(), say or _on_stderr)

    @classmethod
    def nothing(cls, device: "torch.device | str" = "cpu") -> Self:
        """Begins empty, and keeps in memory only."""
        return cls(machine_of(device), None, lambda text: None)

    def failure(self, name: str, work: str = "") -> Failure | None:
        """Why the speed-up `name` is not to be tried again. work: in this kind of work (`Context.work`); empty: in any."""
        found = self._find("failures", name, work)
        return None if found is None else Failure(**found.value, date=found.date)

    def keep_failure(
        self, name: str, reason: str, evidence: str = "", packages: Iterable[str] = (), *, work: str = ""
    ) -> None:
        """reason: the end of a sentence (`its kernel was seen at 27 of 28 layers`). work: as `failure`.
        packages: installed packages on which it depends; with another version or build of one it is tried again."""
        self._keep("failures", _joined(name, work), {"reason": reason, "evidence": evidence}, packages)

    def refusal(self, speedup: Speedup, context: Context) -> No | None:
        """For `dynotune.speedups.choose.decide`: what failed here is not tried again."""
        if all(key.split("\n")[0] != speedup.name for key in self._entries["failures"]):
            return None
        in_this_work = self.failure(speedup.name, context.work)
        failure = in_this_work or self.failure(speedup.name)
        if failure is None:
            return None
        where = f" in {context.work}" if in_this_work else ""
        return No(
            f"it failed on this machine{where} on {failure.date[:10]}: {failure.reason}",
            tried_again(speedup.name),
        )

    def check(self, name: str, key: str) -> dict[str, Any] | None:
        """The result of a check of `name` (gradients against the reference, a dry run's memory) under `key`."""
        found = self._find("checks", name, key)
        return None if found is None else dict(found.value)

    def keep_check(self, name: str, key: str, result: Mapping[str, Any], packages: Iterable[str] = ()) -> None:
        """result: plain values for JSON. key: everything besides the machine on which it depends (shapes, precision ...)."""
        self._keep("checks", _joined(name, key), dict(result), packages)

    def trial(self, package: str) -> dict[str, Any] | None:
        """What trying an optional package gave, as `keep_trial` got it."""
        found = self._find("trials", package)
        return None if found is None else dict(found.value)

    def keep_trial(self, package: str, outcome: Mapping[str, Any], packages: Iterable[str] = ()) -> None:
        """packages: the installed packages of it; one that is missing counts, too: once it is there, the trial is void."""
        self._keep("trials", package, dict(outcome), packages)

    def forget(self, *names: str) -> list[str]:
        """Failures, trials and checks of these names, or of all where none is given.

        Returns what was there, a line each.
        """
        lines: list[str] = []

        def change(entries: _Entries) -> None:
            lines.clear()
            for kind in KINDS:
                for key in [key for key in entries[kind] if not names or key.split("\n")[0] in names]:
                    entry = entries[kind].pop(key)
                    what = entry.value.get("reason") or {"trials": "trial of the package", "checks": "check"}.get(
                        kind, ""
                    )
                    lines.append(printable(f"{key.split(chr(10))[0]} ({entry.date[:10]}): {what}"))

        self._change(change)
        return lines

    def _find(self, kind: str, *key: str) -> _Entry | None:
        found = self._entries[kind].get(_joined(*key))
        return found if found is not None and found.holds() else None

    def _keep(self, kind: str, key: str, value: dict[str, Any], packages: Iterable[str]) -> None:
        date = datetime.now(UTC).isoformat(timespec="seconds")
        value = json.loads(json.dumps(value, allow_nan=False))  # as it will be read, and no float that JSON lacks
        entry = _Entry(value, date, {name: installed_as(name) for name in packages})

        def change(entries: _Entries) -> None:
            entries[kind][key] = entry
            while len(entries[kind]) > MOST:
                del entries[kind][min(entries[kind], key=lambda name: entries[kind][name].date)]

        self._change(change)

    def _change(self, change: Callable[[_Entries], None]) -> None:
        """Change what this process knows, and the file as others have left it."""
        change(self._entries)
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(self.path.with_suffix(".lock"), timeout=LOCK_SECONDS):
                entries = self._read()
                change(entries)
                if self.path is not None:
                    _write(self.path, self.machine, entries)
                    self._entries = entries
        except (OSError, NotImplementedError) as error:  # the latter: the file system has no locks
            why = "another process holds its lock" if isinstance(error, Timeout) else getattr(error, "strerror", None)
            self._forgetful(f"written ({why or error})")

    def _forgetful(self, what: str) -> None:
        self.say(
            f"{printable(str(self.path))} cannot be {what}: what this run learns of its speed-ups is forgotten with it. Set"
            " DYNOTUNE_CACHE to a folder that can be written."
        )
        self.path = None

    def _read(self) -> _Entries:
        empty: _Entries = {kind: {} for kind in KINDS}
        if self.path is None:
            return empty
        try:
            with self.path.open("rb") as file:
                return _entries(file.read(LARGEST))
        except FileNotFoundError:
            return empty
        except OSError as error:
            self._forgetful(f"read ({error.strerror})")
            return empty
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            aside = self.path.with_suffix(".damaged")
            self.say(
                f"{printable(str(self.path))} is damaged ({type(error).__name__}): it is begun anew, and what was"
                f" remembered of this machine's speed-ups is found out again. The old one is {aside.name} beside it."
            )
            try:
                self.path.replace(aside)
            except OSError:  # another process has put it aside, or nothing can be written here, which is said then
                return empty
            return empty


def tried_again(name: str) -> str:
    """The remedy where what is remembered is all that keeps a speed-up or a package out, as an imperative."""
    return f"run `dynotune engaged --forget {shlex.quote(name)}`, so that it is tried again"


def machines_folder() -> Path:
    """Where the files of all machines lie."""
    return cache_folder() / "machines"


def forget_everywhere(names: Iterable[str], say: Say) -> list[str]:
    """`Remembered.forget` for every machine and version whose file lies in the cache folder, each line with its machine."""
    lines = []
    for path in sorted(machines_folder().glob("*.json")):
        try:
            machine = Machine(**json.loads(path.read_bytes())["machine"])
        except (OSError, ValueError, TypeError, KeyError):
            continue  # damaged: whoever needs it says so
        if path.stem == machine.key:
            forgotten = Remembered(machine, path.parent, say).forget(*names)
            lines += [f"{line} [{printable(str(machine))}]" for line in forgotten]
    return lines


def _on_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _joined(*key: str) -> str:
    return "\n".join(filter(None, key))


def _entries(text: bytes) -> _Entries:
    """Raises whatever a file can raise that is not what `_write` wrote."""
    body = json.loads(text)
    if body["format"] != FORMAT:
        raise ValueError(f"format {body['format']!r}")
    found: _Entries = {kind: {key: _Entry(**entry) for key, entry in body[kind].items()} for kind in KINDS}
    for kind in KINDS:
        for entry in found[kind].values():
            if not (isinstance(entry.date, str) and isinstance(entry.packages, dict) and isinstance(entry.value, dict)):
                raise TypeError("no entry")
            if kind == "failures":
                Failure(**entry.value)
    return found


def _write(path: Path, machine: Machine, entries: _Entries) -> None:
    body = {"format": FORMAT, "machine": asdict(machine)}
    body |= {kind: {key: asdict(entry) for key, entry in entries[kind].items()} for kind in KINDS}
    beside = path.with_suffix(f".{os.getpid()}")
    try:
        with beside.open("x", encoding="utf-8") as file:
            json.dump(body, file, indent=1, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
