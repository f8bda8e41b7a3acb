"""The keys that one trainer's version takes, and what became of those that it no longer takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from packaging.version import InvalidVersion, Version

from dynotune.audit.facts.job import Fate, Method, Trainer
from dynotune.audit.schema.came import Came
from dynotune.audit.schema.classes import Key
from dynotune.audit.schema.once import FIRST, ONCE


@dataclass(frozen=True, slots=True)
class Moved:
    """A key that another release renamed or took out."""

    package: str
    since: str
    """The first release that was seen to refuse it, or to call it deprecated."""

    to: str = ""
    """Its new name; empty: there is none."""

    text: str = ""
    """What to do instead, where that is more than a name."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a version makes of one key."""

    fate: Fate
    why: str = ""
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Keys:
    trainer: Trainer
    method: Method | None
    keys: Mapping[str, Key]
    """Empty: nothing is known of this trainer's keys, and none is judged."""

    moved: Mapping[str, Moved] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the packages whose sources were read."""

    source: str = ""
    """Where the keys come from: `installed`, `given`, `the project's own`, or `shipped table`."""

    pinned: Mapping[str, str] = field(default_factory=dict)
    """Versions that the project asks for, where they are not those that were read."""

    refuses_unknown: bool = True
    """Whether this trainer stops at a key that it does not know; else it goes on without a word."""

    own: frozenset[str] = frozenset()
    """Fields of the project's own dataclasses, which its scripts parse beside the trainer's."""

    prefixes: tuple[str, ...] = ()
    """Families of keys that are taken whatever follows."""

    others: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Keys of other classes of the same trainer, which the class that is made has had in no release: whose they are, and
    what they are called here (empty: nothing)."""

    came: Mapping[str, Came] = field(default_factory=dict)
    """Keys that a release brought which the project may ask for less than."""

    @property
    def known(self) -> bool:
        return bool(self.keys)

    @property
    def said_by(self) -> str:
        """Which versions say so, in words."""
        return " and ".join(f"{package} {version}" for package, version in self.versions.items()) or str(self.trainer)

    def fate(self, name: str) -> Verdict:
        """Unknown only where that is certain: the keys were read from the version that runs."""
        if name in self.own:
            return Verdict(Fate.KNOWN)
        key = self.keys.get(name)
        if key is None and name in self.others:
            whose, here = self.others[name]
            return Verdict(Fate.ANOTHERS, f"it is a key of {whose}", here)
        if (not_yet := self._not_yet(name)) is not None:
            return not_yet
        moved = self.moved.get(name)
        if moved is not None and not self.before(moved):
            if key is not None:  # taken still
                return Verdict(Fate.KNOWN, f"deprecated since {moved.package} {moved.since}", moved.to)
            if moved.to:
                return Verdict(Fate.RENAMED, f"{moved.package} {moved.since} calls it `{moved.to}`", moved.to)
            text = f". {moved.text}" if moved.text else ""
            return Verdict(Fate.REMOVED, f"it is gone since {moved.package} {moved.since}{text}")
        if key is not None or not self.known or moved is not None or name.startswith(self.prefixes):
            return Verdict(Fate.KNOWN)
        return Verdict(Fate.KNOWN if self.pinned and not self._in_no_release(name) else Fate.UNKNOWN)

    def _in_no_release(self, name: str) -> bool:
        """Whether the releases that the project asks for are among those whose names are known, and none had this key."""
        if any(name in ONCE.get(package, ()) for package in self.versions):
            return False
        return all(
            package in FIRST and _at_most(FIRST[package], asked) and _at_most(asked, self.versions.get(package, "0"))
            for package, asked in self.pinned.items()
        )

    def _not_yet(self, name: str) -> Verdict | None:
        """Of a key that came after the version which the project asks for."""
        came = self.came.get(name)
        asked = self.pinned.get(came.package, "") if came is not None else ""
        if came is None or not asked or not _at_most(asked, came.last):
            return None
        if came.before:
            return Verdict(Fate.RENAMED, f"{came.package} {asked} calls it `{came.before}`", came.before)
        why = f"it came after {came.package} {came.last}, and {asked} is asked for"
        return Verdict(Fate.REMOVED, f"{why}. Ask for a later {came.package}, or take it out")

    def before(self, moved: Moved) -> bool:
        """Whether the version that the project asks for, else the one that was read, is older than the change. One that asks
        for an older TRL and any transformers has an older one of these, too, for all that is known.
        """
        if moved.package == "transformers" and "trl" in self.pinned and moved.package not in self.pinned:
            return True
        version = self.pinned.get(moved.package) or self.versions.get(moved.package, "")
        return bool(version) and earlier(version, moved.since)


def earlier(version: str, than: str) -> bool:
    """False where one of them is no version."""
    try:
        return Version(version.partition(" ")[0]) < Version(than)
    except InvalidVersion:
        return False


def _at_most(version: str, than: str) -> bool:
    """Of a version with fewer numbers (`4.40`) any that begins so may be meant."""
    try:
        found, limit = Version(version.partition(" ")[0]), Version(than)
    except InvalidVersion:
        return False
    return found <= limit
