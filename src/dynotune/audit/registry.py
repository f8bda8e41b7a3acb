"""All rules: each module of `rules/` declares one as `RULE`."""

import functools
import importlib
import pkgutil
import re
from collections.abc import Mapping

from dynotune.audit.rule import FAMILIES, Rule

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_CODE = re.compile(r"([A-Z]{3})([0-9]{3})")


@functools.cache
def rules() -> Mapping[str, Rule]:
    """By code, in order. Raises `ValueError` for a declaration that breaks the contract."""
    from dynotune.audit import rules as room

    found: dict[str, Rule] = {}
    for module in pkgutil.iter_modules(room.__path__):
        rule: Rule = importlib.import_module(f"{room.__name__}.{module.name}").RULE
        code = _CODE.fullmatch(rule.code)
        if code is None or code[1] not in FAMILIES:
            raise ValueError(f"{module.name}: `{rule.code}` is no code of a family and three digits")
        if not module.name.startswith(rule.code.lower()):
            raise ValueError(f"{module.name}: the file of {rule.code} begins with its code")
        if not _NAME.fullmatch(rule.name):
            raise ValueError(f"{rule.code}: a rule's name is in kebab-case, not `{rule.name}`")
        if rule.code in found:
            raise ValueError(f"there are two rules {rule.code}")
        if rule.code in WITHDRAWN:
            raise ValueError(f"{rule.code} was another rule's code, and is not given again")
        found[rule.code] = rule
    _require_names_of_one(found)
    return dict(sorted(found.items()))


def _require_names_of_one(found: Mapping[str, Rule]) -> None:
    """Each code and name, of today or of the past, means one rule. Raises `ValueError`."""
    means: dict[str, str] = {name: "no rule any more" for pair in WITHDRAWN.items() for name in pair}
    for rule in found.values():
        for name in (rule.code, rule.name, *rule.formerly, *rule.former_names):
            if name in means:
                raise ValueError(f"`{name}` means {rule.code} and {means[name]}")
            means[name] = rule.code


@functools.cache
def heirs() -> Mapping[str, str]:
    """Codes and names of rules that others have taken over, and names that rules had, to the code that means them now."""
    return {old: rule.code for rule in rules().values() for old in (*rule.formerly, *rule.former_names)}


WITHDRAWN: Mapping[str, str] = {
    "CFG021": "longer-than-the-model",
    "CKP003": "one-folder-for-two",
    "CKP004": "disk-fills",
    "CKP050": "unpickled-without-a-check",
    "CMP050": "compiled-each-step",
    "DST003": "sharded-four-bits",
    "DST058": "written-by-every-rank",
    "DST059": "layer-that-the-model-lacks",
    "LOR004": "extreme-scale",
    "LOR005": "half-of-tied-weights",
    "MSK054": "tokens-without-rows",
}
"""Codes and names of rules that are gone without an heir. None is given again: comments and flags would mean another."""
