"""`${a.b}` of OmegaConf and Hydra, resolved where the same file holds the answer."""

import re
from typing import Any

from dynotune.audit.facts.setting import Unknown

_REFERENCE = re.compile(r"\$\{([^${}]+)\}")
_PATH = re.compile(r"\.*[A-Za-z_][\w\-]*(?:\.[\w\-]+)*")
_DEEPEST = 16


def has_references(values: Any) -> bool:
    """Whether any text in it has `${...}`."""
    if isinstance(values, dict):
        return any(has_references(value) for value in values.values())
    if isinstance(values, list):
        return any(has_references(value) for value in values)
    return isinstance(values, str) and _REFERENCE.search(values) is not None


def resolved(values: dict[str, Any]) -> dict[str, Any]:
    """The same with references followed; what a resolver (`${oc.env:HOME}`) or another file would say is `Unknown`."""

    def of(value: Any, above: tuple[str, ...], depth: int) -> Any:
        if isinstance(value, dict):
            return {key: of(child, (*above, str(key)), depth) for key, child in value.items()}
        if isinstance(value, list):
            return [of(child, (*above, str(index)), depth) for index, child in enumerate(value)]
        if not isinstance(value, str):
            return value
        found = _REFERENCE.search(value)
        if found is None:
            return value
        if depth >= _DEEPEST:
            return Unknown("its references lead in a circle")
        if found[0] == value:
            return look_up(found[1], above, depth)
        answers: dict[str, Any] = {name: look_up(name, above, depth) for name in _REFERENCE.findall(value)}
        unknown = next((answer for answer in answers.values() if isinstance(answer, Unknown)), None)
        return unknown or _REFERENCE.sub(lambda match: str(answers[match[1]]), value)

    def look_up(name: str, above: tuple[str, ...], depth: int) -> Any:
        if not _PATH.fullmatch(name):
            return Unknown(f"`${{{name}}}` is known when it runs")
        plain = name.lstrip(".")
        levels = len(name) - len(plain)
        start = above[: max(0, len(above) - levels)] if levels else ()
        here: Any = values
        for part in (*start, *plain.split(".")):
            if isinstance(here, dict) and part in here:
                here = here[part]
            elif isinstance(here, list) and part.isdecimal() and int(part) < len(here):
                here = here[int(part)]
            else:
                return Unknown(f"`${{{name}}}` stands in another file, or nowhere")
        return of(here, (*start, *plain.split(".")), depth + 1)

    return {key: of(value, (str(key),), 0) for key, value in values.items()}
