"""A training job as its configuration, script and launcher together make it, in one vocabulary for all trainers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.setting import Known, Setting
from dynotune.audit.place import NOWHERE, Place


class Trainer(StrEnum):
    """Whose code takes the steps."""

    DYNOTUNE = "Dynotune"
    TRL = "TRL"
    TRANSFORMERS = "transformers"
    AXOLOTL = "Axolotl"
    LLAMA_FACTORY = "LLaMA-Factory"
    OPEN_INSTRUCT = "open-instruct"
    UNSLOTH = "Unsloth"
    TORCH = "PyTorch"
    """A loop of the user's own."""

    UNKNOWN = "unknown"


class Method(StrEnum):
    SFT = "sft"
    DPO = "dpo"
    PRETRAINING = "pretraining"
    OTHER = "other"


class Fate(StrEnum):
    """What a trainer's version makes of a key that stands in a configuration."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    RENAMED = "renamed"
    REMOVED = "removed"
    ANOTHERS = "another trainer's"
    IGNORED = "ignored"
    """Read, and without effect in this job."""


@dataclass(frozen=True, slots=True)
class GivenKey:
    """A key as it stands in a file, a call or a command."""

    name: str
    value: Any
    place: Place
    fate: Fate
    why: str = ""
    """For all but KNOWN: a sentence, with the version that says so."""

    instead: str = ""
    """What to call it, where there is a name."""

    left_out: Place | None = None
    """Where a script leaves it out without a word, since the trainer's class does not take it; None: the class gets it."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Settings of a job that could not be followed: whatever they say, no rule has seen it."""

    place: Place
    """Of the expression whose content is not known."""

    why: str
    """A sentence without its full stop, from what could not be followed on."""

    names: frozenset[str]
    """Keys that may come that way."""

    @property
    def said(self) -> str:
        """In one sentence without its full stop."""
        return f"{self.place.file}:{self.place.line}: {self.why}"


@dataclass(frozen=True, slots=True)
class Job:
    trainer: Trainer
    method: Method | None
    """None: not known."""

    settings: Mapping[str, Setting]
    """By name in TRL's and transformers' words (`per_device_train_batch_size`, `packing`, `attn_implementation`, `bf16`,
    `num_processes`, ...). Defaults of the trainer's version are in it, marked so; what cannot be told is `Unknown`."""

    given: Sequence[GivenKey] = ()
    home: Place = NOWHERE
    """What holds settings that are added: the configuration's mapping, or the call that makes the arguments."""

    files: tuple[str, ...] = ()
    """Every file that the settings come from: launcher, script, configurations."""

    environment: Mapping[str, Setting] = field(default_factory=dict)
    """Variables that the launcher or the script sets."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the packages that defaults and keys were resolved with; a value may say where it comes from."""

    pinned: Mapping[str, str] = field(default_factory=dict)
    """Versions that the project asks for, where they are others."""

    native: Mapping[str, str] = field(default_factory=dict)
    """The trainer's own names for settings that it calls otherwise: `{"packing": "sample_packing"}`."""

    makes_rows: bool = False
    """The script makes other rows of its data set before the trainer gets them."""

    runs_on_gpu: bool | None = None
    """None: not known, which is taken for yes."""

    holes: tuple[Hole, ...] = ()
    """Where settings come from that could not be followed."""

    def setting(self, name: str) -> Setting | None:
        return self.settings.get(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The value where it is known; else `default`."""
        found = self.settings.get(name)
        return found.value if found is not None and found.is_known else default

    def is_given(self, name: str) -> bool:
        """Whether somebody wrote it down, rather than the trainer's default."""
        found = self.settings.get(name)
        return found is not None and found.known is not Known.DEFAULT

    def place(self, name: str) -> Place:
        """Where a setting stands; the job's home where it is a default."""
        found = self.settings.get(name)
        return found.place if found is not None and found.place.file else self.home

    def called(self, name: str) -> str:
        """What this trainer calls a setting."""
        found = self.settings.get(name)
        return (found.given_as if found else "") or self.native.get(name, name)

    def set(self, name: str, value: Any) -> Change:
        """The edit that gives a setting this value. `value` is the trainer's own."""
        return Change(Edit.SET, self.place(name) if self.is_given(name) else self.home, self.called(name), value)

    def remove(self, name: str) -> Change:
        """The edit that takes a setting out; it must be given."""
        return Change(Edit.REMOVE, self.place(name), self.called(name))
