"""A job of any trainer as a configuration of Dynotune that loads, and what cannot be carried over, each with the reason."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dynotune.audit.facts.job import Fate, Job, Method, Trainer
from dynotune.audit.facts.setting import Setting, Unknown
from dynotune.config.load import load_config
from dynotune.config.secrets import hidden, is_secret, masked, names_a_secret
from dynotune.config.whole import METHODS, WholeConfig
from dynotune.config.yaml_text import flow
from dynotune.errors import ConfigError, DynotuneError
from dynotune.printable import printable

SAME_DEFAULTS = (Trainer.TRL, Trainer.DYNOTUNE)
"""Whose defaults are Dynotune's, or differ for a reason that is documented."""

ADAPTER = "use_peft"
NEEDED = ("model_name_or_path", "dataset_name")


@dataclass(frozen=True, slots=True)
class Carried:
    text: str
    """YAML."""

    left: tuple[str, ...]
    """Sentences: what is not in it, and why."""

    command: str


def carry_over(job: Job) -> Carried:
    """Raises `ConfigError` for a job that trains by neither of our methods."""
    if job.method not in (Method.SFT, Method.DPO):
        kind = f"`{job.method}`" if job.method else "a method that is not known"
        raise ConfigError(f"the job of {printable(job.home.file)} trains by {kind}: Dynotune trains SFT and DPO.")
    into = METHODS["dpo" if job.method is Method.DPO else "sft"]
    wanted, left = _wanted(job, into)
    held, refused = _that_loads(wanted, into)
    left += refused
    for key in NEEDED:
        if key not in held and not (key == "dataset_name" and "datasets" in held):
            left.append(f"`{key}` is not known from the files: add it before a run")
    left += [f"{name}: set it in the shell (`export {name}=...`)" for name in sorted(job.environment)]
    if any(file.endswith(".py") for file in job.files):
        left.append("code of the script (how it prepares data, callbacks, its own loop) is not translated: compare it")
    source = ", ".join(printable(file) for file in job.files) or printable(job.home.file)
    lines = [f"# {job.trainer}: {source}, as `dynotune {into.method.command}` takes it.", *_lines(held)]
    lines += ["", "# Not carried over:", *(f"# - {sentence}" for sentence in left)] if left else []
    return Carried("\n".join(lines) + "\n", tuple(left), f"dynotune {into.method.command}")


OTHER_UPDATES = {
    "packing": "a row is a bin of `max_length` tokens, so an epoch has fewer updates; rows are packed without that by"
    " default (`packing: false`)"
}
"""Keys whose value `true` is the source's own choice, and what it does to the updates."""


def _lines(held: Mapping[str, Any]) -> Iterator[str]:
    for name, value in held.items():
        if value is True and name in OTHER_UPDATES:
            yield f"# Changes updates: {OTHER_UPDATES[name]}."
        yield flow({name: value})[1:-1]


def _wanted(job: Job, into: type[WholeConfig]) -> tuple[dict[str, Any], list[str]]:
    """What the job sets, in its order, and what cannot even be asked for."""
    wanted: dict[str, Any] = {}
    left: list[str] = []
    for name, setting in job.settings.items():
        called = printable(job.called(name), 80)
        if not job.is_given(name) and not _other_default(name, setting, job, into):
            continue
        if isinstance(setting.value, Unknown):
            left.append(f"`{called}`: {printable(masked(setting.value.why), 200)}")
        elif is_secret(name) or names_a_secret(name) or hidden(name, setting.value) != setting.value:
            left.append(f"`{called}`: secrets are not written")
        elif not _plain(setting.value):
            left.append(f"`{called}`: its value is no plain one")
        elif setting.value is not None:
            wanted[name] = setting.value
    taken = {job.called(name) for name in job.settings}
    for key in job.given:
        if key.name not in taken and key.fate is not Fate.KNOWN:
            said = f": {printable(masked(key.why), 200).rstrip('.')}" if key.why else ""
            left.append(f"`{printable(key.name, 80)}` is {key.fate}{said}")
    if any(name.startswith("lora_") for name in wanted) and job.get(ADAPTER) is not False:
        wanted.setdefault(ADAPTER, True)
    return wanted, left


def _other_default(name: str, setting: Setting, job: Job, into: type[WholeConfig]) -> bool:
    """Whether nobody gives it, and the trainer's default is not ours."""
    field = into.model_fields.get(name)
    if field is None or job.trainer in SAME_DEFAULTS or not setting.is_known:
        return False
    return bool(setting.value != field.get_default(call_default_factory=True))


def _plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _that_loads(wanted: Mapping[str, Any], into: type[WholeConfig]) -> tuple[dict[str, Any], list[str]]:
    """As many keys as load together, and why the others do not. A key may need another that comes after it."""
    if _refused(wanted, into) is None:
        return dict(wanted), []
    held: dict[str, Any] = {}
    waiting = dict(wanted)
    while True:
        taken = []
        for key, value in waiting.items():
            if _refused({**held, key: value}, into) is None:
                held[key] = value
                taken.append(key)
        if not taken:
            break
        waiting = {key: value for key, value in waiting.items() if key not in taken}
    reasons = [
        f"`{key}: {printable(str(value), 80)}`: {_refused({**held, key: value}, into)}"
        for key, value in waiting.items()
    ]
    return {key: held[key] for key in wanted if key in held}, reasons


def _refused(values: Mapping[str, Any], into: type[WholeConfig]) -> str | None:
    """What loading says against these; None where they load."""
    try:
        load_config(None, values, spelled={key: f"`{key}`" for key in values}, into=into)
    except DynotuneError as error:
        return printable(masked(" ".join(str(error).split())), 300)
    return None
