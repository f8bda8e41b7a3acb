"""A run's name or folder, or the help of a flag, tells a value that is another one."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_END = r"(?=$|[-_/.](?!\d))"
_TOLD = (
    ("learning_rate", re.compile(rf"(?:^|[-_/])lr[-_=]?(\d(?:\.\d+)?e-?\d+){_END}", re.IGNORECASE)),
    ("num_train_epochs", re.compile(rf"(?:^|[-_/])(?:ep|epochs?)[-_=]?(\d{{1,2}}){_END}", re.IGNORECASE)),
    ("num_train_epochs", re.compile(rf"(?:^|[-_/])(\d{{1,2}})(?:ep|epochs?){_END}", re.IGNORECASE)),
    ("lora_r", re.compile(rf"lora[-_]?r(?:ank)?[-_=]?(\d{{1,3}}){_END}", re.IGNORECASE)),
    ("max_length", re.compile(rf"(?:^|[-_/])(?:ctx|len|seq(?:len)?)[-_=]?(\d{{3,6}}){_END}", re.IGNORECASE)),
)
_DEFAULT = re.compile(r"\bdefaults?\s?(?:to|is|:|=|of|value is)?:?\s{0,2}(\d[\d.,]*(?:e-?\d+)?|\.\d+)", re.IGNORECASE)

_GOES_ON = re.compile(r"[\w%^*/]|\s?(?:[%^*/]|[kKMG]\b|percent|thousand|million|billion|[x\u00d7]\s?\d)")
"""What makes another number of the one before it: `4k`, `2**16`, `10 %`."""


def claims_of_names(job: Job) -> Iterator[Said]:
    """`output_dir` and `run_name` that end in values of the run, as people name their runs."""
    for key in ("run_name", "output_dir"):
        name = job.setting(key)
        if name is None or not isinstance(name.value, str) or not job.is_given(key) or name.others:
            continue
        if "${" in name.value or "{" in name.value:
            continue
        for setting, told in _TOLD:
            found, held = told.search(name.value), job.setting(setting)
            if found is None or held is None or not held.is_known or held.others or not job.is_given(setting):
                continue
            if not _same(found[1], held.value):
                yield Finding(
                    f"`{key}: {name.value}` tells `{found[1]}`, and `{job.called(setting)}` is `{held.value}`.",
                    place=name.place if name.place.file else job.home,
                    also=(job.place(setting),),
                    evidence=Evidence(Level.RESOLVED, {key: name.value, setting: held.value}),
                    stake=Stake(AtStake.CLARITY),
                    remedy=Remedy(Risk.BEHAVIOURAL, "Set what was meant, or name the run by what it has."),
                )
                return


def _same(told: str, held: object) -> bool:
    if isinstance(held, bool) or not isinstance(held, int | float | str):
        return True
    try:
        return abs(float(told) - float(held)) <= 1e-9 + 1e-6 * abs(float(held))
    except ValueError:
        return True


def claims_of_help(project: Project) -> Iterator[Said]:
    """The help of a flag tells a default that it has not."""
    for script in project.scripts:
        for node in ast.walk(script.tree) if "help" in script.source else ():
            if isinstance(node, ast.Call):
                yield from _of_a_flag(node, script)


def _of_a_flag(call: ast.Call, script: Script) -> Iterator[Said]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = {one.arg: one.value for one in call.keywords}
    text, default = given.get("help"), given.get("default")
    if name == "field" and isinstance(given.get("metadata"), ast.Dict):
        held = given["metadata"]
        assert isinstance(held, ast.Dict)
        texts = [
            value
            for key, value in zip(held.keys, held.values, strict=True)
            if isinstance(key, ast.Constant) and key.value == "help"
        ]
        text = texts[0] if texts else None
    if name not in ("add_argument", "option", "field", "Option") or not isinstance(text, ast.Constant):
        return
    value = default.value if isinstance(default, ast.Constant) else None
    if not isinstance(text.value, str) or type(value) not in (int, float):
        return
    found = _DEFAULT.search(text.value)
    if found is None or _GOES_ON.match(text.value, found.end()):
        return
    told = found[1].rstrip(".,").replace(",", "")
    if told and not _same(told, value):
        yield Finding(
            f"The help says that the default is {told}, and it is `{value!r}`.",
            place=place_of(script, call),
            evidence=Evidence(Level.TEXT, {"told": told, "default": value}),
            stake=Stake(AtStake.CLARITY),
            remedy=Remedy(Risk.BEHAVIOURAL, "Write `%(default)s` into the help, or set what was meant."),
        )
