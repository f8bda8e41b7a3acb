"""A configuration that one script of a project writes, and another one reads when it runs."""

import posixpath
import re
from typing import TYPE_CHECKING

from dynotune.audit.read.python.module import Module, Site
from dynotune.audit.read.python.value import Value

if TYPE_CHECKING:
    from dynotune.audit.read.python.evaluator import Evaluator

_DUMPS = ("dump", "dumps", "safe_dump")
_WRITERS = re.compile(r"^(json5?|yaml|toml|tomli_w|tomlkit|srsly)\.(safe_)?dumps?$")
ASKED = 2
"""Keys that both have in common, from which on it is taken for the same file."""


def written(of: "Evaluator", name: str = "") -> Value | None:
    """The mapping that exactly one other script dumps, with keys that this one asks for. name: of the file that is read,
    where it is known."""
    text = "\n".join(of.module.lines)
    found: list[Value] = []
    for last in _DUMPS:
        for module, site in of.others.calls_of(last):
            if module is of.module or not site.node.args or not _WRITERS.match(module.dotted(site.node.func)):
                continue
            value = of.elsewhere(module).value(site.node.args[0], site.scope)
            keys = [key for key in value.value if isinstance(key, str)] if isinstance(value.value, dict) else []
            asked = [key for key in keys if re.search(rf"(?:\[|get\(|pop\()[\"']{re.escape(key)}[\"']", text)]
            if len(asked) >= ASKED and _may_be(name, module, site):
                found.append(value)
    return found[0] if len(found) == 1 else None


def _may_be(name: str, module: Module, site: Site) -> bool:
    """The file that is read has a name that the writer writes; any, where it is not known."""
    last = posixpath.basename(name)
    near = "\n".join(module.lines[max(site.node.lineno - 8, 0) : site.node.lineno + 4])
    return not last or last in near
