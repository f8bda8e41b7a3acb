"""Facts by hand, for tests of rules."""

from dataclasses import replace
from typing import Any

from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.environment import Environment, Package
from dynotune.audit.facts.job import Fate, GivenKey, Job, Method, Trainer
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.run import RunFacts
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.setting import Known, Setting, Unknown
from dynotune.audit.finding import Finding, NotChecked
from dynotune.audit.place import NOWHERE, Place
from dynotune.audit.registry import rules
from dynotune.audit.rule import Subject

UNKNOWN = Unknown("it comes from the command line")


class Default:
    """A value that nobody wrote down."""

    def __init__(self, value: Any) -> None:
        self.value = value


def a_job(
    trainer: Any = Trainer.TRL,
    method: Any = Method.SFT,
    *,
    file: Any = "sft.yaml",
    versions: Any = None,
    runs_on_gpu: Any = None,
    environment: Any = None,
    keys: Any = None,
    **values: Any,
) -> Job:
    """A job of a configuration, with a line for each setting. `keys`: by the trainer's own names."""
    settings = {}
    for line, (name, value) in enumerate(values.items(), 1):
        if isinstance(value, Default):
            settings[name] = Setting(name, value.value, NOWHERE, Known.DEFAULT)
        else:
            settings[name] = Setting(name, value, Place(file, line, key=name))
    return Job(
        trainer,
        method,
        settings,
        [GivenKey(name, value, Place(file, 90, key=name), Fate.KNOWN) for name, value in (keys or {}).items()],
        home=Place(file),
        files=(file,),
        versions=versions or {},
        runs_on_gpu=runs_on_gpu,
        environment=environment or {},
    )


def some_data(file: str = "data.jsonl", **values: Any) -> DataFacts:
    told: dict[str, Any] = {"format": "messages (4 rows)", "rows": 4, "ledger": {}} | values
    return DataFacts(Place(file), **told)


def a_machine(
    *, gpus: int = 1, capability: str = "9.0", gib: int = 80, packages: dict[str, Package] | None = None, **values: Any
) -> Environment:
    gpu = {"name": "a GPU", "memory": gib << 30, "free": gib << 30, "capability": capability}
    told: dict[str, Any] = {"machine": {"gpus": [gpu] * gpus, "cpu": {"cores": 16}}} | values
    return Environment(packages or {}, [gpu] * gpus, **told)


HOLDS = {
    Job: "jobs",
    Script: "scripts",
    Launch: "launches",
    DataFacts: "data",
    RunFacts: "runs",
}
"""Where a project holds its facts, by their type."""


def _said(code: str, subject: Any, project: Project | None) -> list[Any]:
    """A rule that is asked about whole projects is asked about the given one with this subject in it."""
    rule, whole = rules()[code], project or Project(".")
    if rule.subject is not Subject.PROJECT or isinstance(subject, Project):
        return list(rule.check(subject, whole))
    if isinstance(subject, Environment):
        whole = replace(whole, environment=subject)
    else:
        name = HOLDS[type(subject)]
        held = getattr(whole, name)
        whole = whole if any(one is subject for one in held) else replace(whole, **{name: [*held, subject]})
    return list(rule.check(whole, whole))


def findings(code: str, subject: Any, project: Project | None = None) -> list[Finding]:
    """What a rule finds."""
    return [one for one in _said(code, subject, project) if isinstance(one, Finding)]


def not_checked(code: str, subject: Any, project: Project | None = None) -> list[NotChecked]:
    """What a rule could not check."""
    return [one for one in _said(code, subject, project) if isinstance(one, NotChecked)]
