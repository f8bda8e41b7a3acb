"""The contract of a rule: one file declares it, and running, output, documentation and tests walk the registry."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from dynotune.audit.finding import Said

if TYPE_CHECKING:
    from dynotune.audit.facts.project import Project


class Subject(StrEnum):
    """What a rule is asked about, once for each there is."""

    JOB = "job"
    """A training job with its settings resolved: `facts.job.Job`."""

    SCRIPT = "script"
    """A Python file: `facts.script.Script`."""

    LAUNCH = "launch"
    """A command that starts something: `facts.launch.Launch`."""

    CONFIG = "config"
    """A configuration file: `facts.config.ConfigFile`."""

    ENVIRONMENT = "environment"
    DATA = "data"
    RUN = "run"
    """A folder that a run has written: `facts.run.RunFacts`."""

    PROFILE = "profile"
    """What was seen of running steps: `profile.record`."""

    PROJECT = "project"
    """Everything at once, for what lies between files."""


NONE_OF = {
    Subject.JOB: "no training job was found",
    Subject.SCRIPT: "no Python script was read",
    Subject.LAUNCH: "no command that starts training was found",
    Subject.CONFIG: "no configuration was read",
    Subject.ENVIRONMENT: "the environment was not looked at (`--env`)",
    Subject.DATA: "no data was given (`--data FILE`)",
    Subject.RUN: "no run was given (`--run RUN_DIR`)",
    Subject.PROFILE: "no command was run (`-- python train.py`)",
    Subject.PROJECT: "nothing was read that rules could be asked about",
}
"""Why rules about a subject could not be checked, where there is none."""


class Group(StrEnum):
    PERFORMANCE = "performance"
    CORRECTNESS = "correctness"
    MEMORY = "memory"
    DATA = "data"
    MEASURE = "measure"
    ENVIRONMENT = "environment"
    CONFIGURATION = "configuration"
    OPERATION = "operation"


@dataclass(frozen=True, slots=True)
class Example:
    """Files as a user would have them. Tests audit them, and the page shows them."""

    files: dict[str, str]
    """Text by relative path. The first is the one that the page explains."""

    says: str = ""
    """For a bad example: words that the finding's message has."""


@dataclass(frozen=True, slots=True)
class Page:
    """What `dynotune rule CODE` and the documentation say beyond the summary. Markdown."""

    what: str
    why: str
    detected: str
    """How it is detected, and at what levels of evidence."""

    proven: str
    """How a user sees for himself that it is so, and that the remedy worked: a command."""

    deliberate: tuple[str, ...]
    """Reasons for which it may be meant so."""

    sources: tuple[str, ...] = ()
    """Where the numbers and the knowledge come from."""


Check = Callable[[Any, "Project"], Iterator[Said]]


@dataclass(frozen=True, slots=True)
class Rule:
    """code: three letters for the family, three digits; stable for ever. name: kebab-case."""

    code: str
    name: str
    summary: str
    """What it finds, as a sentence."""

    group: Group
    subject: Subject
    check: Check
    """Gets one subject and the project. Yields findings (their `code` is filled in) and what could not be checked; nothing
    where all is well."""

    page: Page
    bad: Example | None = None
    good: Example | None = None
    """None only for subjects that no file holds (environment, profile): their tests bring records."""

    also_bad: tuple[Example, ...] = ()
    """Other shapes of the same fault, one each."""

    formerly: tuple[str, ...] = ()
    """Codes of rules that this one has taken over: suppressions and `--ignore` that name them go on working."""

    former_names: tuple[str, ...] = ()
    """Names of those rules, and names that this one had: they go on working, too."""


FAMILIES = {
    "ATT": "attention",
    "PAD": "padding and packing",
    "DAT": "data",
    "MSK": "templates and masks",
    "PRC": "precision",
    "CMP": "compilation and fused kernels",
    "HST": "the host",
    "MEM": "memory",
    "OPT": "optimizer and batches",
    "LOR": "adapters",
    "DPO": "preference training",
    "CKP": "checkpoints",
    "DST": "several devices",
    "ENV": "the environment",
    "MSR": "figures",
    "CFG": "configurations",
}
