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
    return dict(sorted(found.items()))


@functools.cache
def heirs() -> Mapping[str, str]:
    """Codes of rules that others have taken over, to the code that means them now."""
    return {old: rule.code for rule in rules().values() for old in rule.formerly}


WITHDRAWN = frozenset(
    {"CFG021", "CKP003", "CKP004", "CKP050", "CMP050", "DST003", "DST058", "DST059", "LOR004", "LOR005", "MSK054"}
)
"""Codes of rules that are gone without an heir. None is given again: comments and flags that name it would mean another."""
