"""From what a user gave to what is honoured: every key finds its fate, every value its type."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from dynotune.config.checking.problems import Origins, Problem, close_to, did_you_mean, shown, type_problems
from dynotune.config.fates.aliases import ALIASES
from dynotune.config.fates.fate import Fate, Kind, is_empty, same
from dynotune.config.fates.launcher import launcher_fate
from dynotune.config.fates.legacy import LEGACY, RENAMED
from dynotune.config.method import Method
from dynotune.config.reading.forms import as_spelled, shaped, texts_only
from dynotune.config.reading.values import INIT_KWARGS_WITH_A_KEY, taken
from dynotune.config.secrets import names_a_secret
from dynotune.errors import ConfigError


@dataclass
class Resolved:
    """The keys that are honoured, with the sentences to say and the problems found so far."""

    values: dict[str, Any] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    given_as: dict[str, str] = field(default_factory=dict)
    """Honoured key to the name by which it was given."""


def resolve(model: type[BaseModel], method: Method, given: Mapping[Any, Any], origins: Origins) -> Resolved:
    """Give every key its fate: keep the honoured ones, note the superseded, find fault with the rest."""
    resolved = Resolved()
    named = [(str(raw), value) for raw, value in given.items()]
    yielding = [key for key, _ in named if (fate := _fate(method, key)[1]) is not None and fate.yields]
    for key, value in sorted(named, key=lambda one: one[0] in yielding):
        if key in model.model_fields and key not in method.without:
            _keep(resolved, model, method, key, key, value, origins)
            continue
        name, fate = _fate(method, key)
        if fate is not None and fate.value is not None:
            try:
                value = fate.value(value)
            except ValueError as error:
                text = f"`{key}: {shown(value, key=key)}`: {error}."
                resolved.problems.append(Problem((key,), text, origins.place(key)))
                continue
        if name is not None:
            if fate is not None and fate.yields and name in resolved.values:
                continue
            # A rename: transformers' or TRL's own, so the value means the same.
            if not (is_empty(value) or (key == "warmup_ratio" and same(value, 0))):
                _rename(resolved, model, method, key, name, value, origins)
        elif fate is None:
            resolved.problems.append(Problem((key,), _unknown(model, method, key, value), origins.place(key)))
        else:
            _apply(resolved, key, fate, value, origins)
    _lift_init_kwargs(resolved, model, method, origins)
    return resolved


def _lift_init_kwargs(resolved: Resolved, model: type[BaseModel], method: Method, origins: Origins) -> None:
    """`model_init_kwargs: {dtype: bfloat16}` says `dtype: bfloat16`: one place to read each from. Where a key stands in both
    places and they disagree, both are kept for the check of combinations."""
    inner = resolved.values.get("model_init_kwargs")
    if not isinstance(inner, dict):
        return
    left = dict(inner)
    for name, key in INIT_KWARGS_WITH_A_KEY.items():
        flat = resolved.values.get(key)
        if name not in left or (flat is not None and not same(flat, left[name])):
            continue
        value = left.pop(name)
        if flat is not None or value is None:
            continue
        try:
            if isinstance(value, str):
                value = shaped(value, model.model_fields[key].annotation)
            resolved.values[key], said = taken(key, value, method.rules)
        except ValueError as error:
            text = f"`model_init_kwargs: {{{name}: {shown(value, key=key)}}}`: {error}."
            resolved.problems.append(Problem(("model_init_kwargs",), text, origins.place("model_init_kwargs")))
            continue
        resolved.given_as[key] = "model_init_kwargs"
        if said is not None:
            resolved.notices.append(said)
    resolved.values["model_init_kwargs"] = left


def build(
    model: type[BaseModel], values: Mapping[str, Any], origins: Origins
) -> tuple[BaseModel | None, list[Problem]]:
    """Check the types of values; the instance holds those that passed, so that combinations can be checked too."""
    instance, errors = _try(model, values)
    if instance is not None:
        return instance, []
    problems = type_problems(errors, model, origins)
    bad = {key for problem in problems for key in problem.keys}
    passed, _ = _try(model, {key: value for key, value in values.items() if key not in bad})
    return passed, problems


def _try(model: type[BaseModel], values: Mapping[str, Any]) -> tuple[BaseModel | None, list[Any]]:
    instance = model.__new__(model)
    try:
        BaseModel.__init__(instance, **values)
    except ValidationError as error:
        return None, list(error.errors(include_url=False))
    return instance, []


def _fate(method: Method, key: str) -> tuple[str | None, Fate | None]:
    """A renamed key's new name, or the fate of a key that we do not have."""
    if key in RENAMED:
        return RENAMED[key], None
    fate = method.fates.get(key) or LEGACY.get(key) or launcher_fate(key)
    if fate is not None and fate.key is not None:
        return fate.key, fate
    return None, fate


def _keep(
    resolved: Resolved, model: type[BaseModel], method: Method, key: str, name: str, value: Any, origins: Origins
) -> None:
    annotation = model.model_fields[key].annotation
    place = origins.place(name)
    in_file = origins.file if not place.startswith("flag ") else None
    if in_file is not None and texts_only(annotation):
        value = as_spelled(value, name, in_file)
    try:
        value = shaped(value, annotation, spelled=in_file.spelled.get((name,)) if in_file is not None else None)
        value, said = taken(key, value, method.rules)
    except ConfigError as error:
        text = f"`{name}: {shown(value, key=key)}`: {str(error).removeprefix('value').lstrip(', :')}"
        resolved.problems.append(Problem((key,), text, place))
        return
    except ValueError as error:
        resolved.problems.append(Problem((key,), f"`{name}: {shown(value, key=key)}`: {error}.", place))
        return
    if said is not None:
        resolved.notices.append(said)
    earlier = resolved.given_as.get(key)
    if earlier is not None and not same(resolved.values[key], value):
        text = (
            f"`{earlier}: {shown(resolved.values[key], key=key)}` and `{name}: {shown(value, key=key)}` are two names "
            f"of one key and disagree. Keep `{key}`."
        )
        resolved.problems.append(Problem((key,), text, place))
        return
    resolved.given_as[key] = name
    resolved.values[key] = value


def _rename(
    resolved: Resolved, model: type[BaseModel], method: Method, old: str, new: str, value: Any, origins: Origins
) -> None:
    if old == "warmup_ratio" and _at_least_one(value):
        text = f"`warmup_ratio: {shown(value)}` must be below 1. Steps are given by `warmup_steps`."
        resolved.problems.append(Problem((new,), text, origins.place(old)))
        return
    _keep(resolved, model, method, new, old, value, origins)
    if old in RENAMED and resolved.given_as.get(new) == old:
        more = " (below 1 it is a share of all steps)" if old == "warmup_ratio" else ""
        resolved.notices.append(f"`{old}` is the old name of `{new}`{more} and is taken as such.")


def _at_least_one(value: Any) -> bool:
    try:
        return float(value) >= 1
    except (TypeError, ValueError, OverflowError):
        return False


def _apply(resolved: Resolved, key: str, fate: Fate, value: Any, origins: Origins) -> None:
    if fate.is_noop(value):
        return
    reason = next((why for quiet, why in fate.refuses.items() if same(value, quiet)), None)
    said = f"`{key}: {shown(value, key=key)}`"
    if fate.kind is Kind.SUPERSEDED and reason is None:
        resolved.notices.append(f"{said} is accepted and not needed: {fate.reason}.")
        return
    instead = f" {fate.instead[0].upper()}{fate.instead[1:]}." if fate.instead and reason is None else ""
    text = f"{said} is refused: {reason or fate.reason}.{instead}"
    resolved.problems.append(Problem((key,), text, origins.place(key)))


def _unknown(model: type[BaseModel], method: Method, key: str, value: Any) -> str:
    # Nobody knows what an unknown key holds: `hub_tokn` must not end up in a log, so that text is not repeated.
    told = key in ALIASES and not names_a_secret(key)
    said = f"`{key}: {shown(value, key=key)}`" if told or isinstance(value, bool | int | float) else f"`{key}`"
    if key in ALIASES:
        return f"{said}{_of_another(key, method)}"
    hint = did_you_mean(key, _declared(model, method)) or did_you_mean(key, _others(model, method))
    if not hint and (theirs := close_to(key, ALIASES)):
        hint = f" Did you mean `{theirs}`? That{_of_another(theirs, method)}"
    return f"{said}: there is no key `{key}`.{hint or f' `dynotune {method.command} --help` lists the keys.'}"


def _of_another(key: str, method: Method) -> str:
    """What to write for another trainer's key, behind its name."""
    trainer, suggestion = ALIASES[key]
    suggestion = method.aliases.get(key, suggestion)
    if suggestion.startswith("nothing: "):
        return f" is a name of {trainer}. Remove it: {suggestion.removeprefix('nothing: ')}."
    return f" is a name of {trainer}. Write {suggestion}."


def _declared(model: type[BaseModel], method: Method) -> Iterator[str]:
    yield from (name for name in model.model_fields if name not in method.without)


def _others(model: type[BaseModel], method: Method) -> Iterator[str]:
    yield from (name for name in (*method.fates, *RENAMED, *LEGACY) if name not in model.model_fields)
