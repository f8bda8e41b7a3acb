"""A configuration file, read safely: plain values and the line of every key.

YAML is read with PyYAML's safe loader under YAML 1.1's rules, as TRL reads it, with three differences: `1e-5` is a
number (YAML 1.2), dates stay text, and a key given twice is an error. Size, depth and the number of values are
limited, so that no file, however it nests or repeats itself by aliases, costs more than a moment.
"""

import json
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dynotune.config.secrets import masked
from dynotune.errors import ConfigError
from dynotune.printable import printable

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_VALUES = 20_000
MAX_CHARACTERS = 2 << 20
"""Of all values, aliases expanded: a long text costs nothing until it is written out as often as it is named."""

MAX_DIGITS = 100

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class ConfigFile:
    """What a file says: values as written, where each key stands, and how each scalar was spelled."""

    path: Path
    values: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    spelled: dict[KeyPath, str] = field(default_factory=dict)
    """The text of unquoted scalars, so that `run_name: 1e3` can stay the text `1e3`."""


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader with `1e-5` as a number and dates as text."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _construct_number(loader: Loader, node: yaml.ScalarNode) -> int | float:
    if len(node.value) > MAX_DIGITS:
        raise ValueError(f"line {node.start_mark.line + 1}: a number of {len(node.value):,} digits")
    whole = node.tag.endswith(":int")
    return loader.construct_yaml_int(node) if whole else loader.construct_yaml_float(node)


Loader.add_constructor("tag:yaml.org,2002:int", _construct_number)
Loader.add_constructor("tag:yaml.org,2002:float", _construct_number)


def read_file(path: Path) -> ConfigFile:
    """Read a YAML or JSON file (`.json`).

    Raises:
        ConfigError: the file is missing, unreadable, too large, malformed, or not one mapping of keys to values.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        where = printable(str(path))
        raise ConfigError(f"{where}: the configuration file cannot be read: {error.strerror or error}") from None
    path = Path(printable(str(path)))
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES:,} bytes. A configuration is a short file: is this data?")
    return _read_json(path, content) if path.suffix.lower() == ".json" else _read_yaml(path, content)


def read_flow(text: str) -> Any:
    """The value of a flag or field that is written as JSON or YAML: `{"a": 1}`, `{a: 1}`, `[a, b]`."""
    return _construct(Path("value"), text).values["value"]


def _read_json(path: Path, content: bytes) -> ConfigFile:
    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen:
                raise ConfigError(f"{path}: the key `{printable(key)}` is given twice. Remove one.")
            seen[key] = value
        return seen

    def constant(name: str) -> float:
        raise ConfigError(f"{path}: {name} is not a number that any key takes.")

    def number(digits: str) -> int:
        if len(digits) > MAX_DIGITS:
            raise ConfigError(f"{path}: a number of {len(digits):,} digits is not one that any key takes.")
        return int(digits)

    try:
        text = content.decode("utf-8-sig")
        values = json.loads(text, object_pairs_hook=mapping, parse_constant=constant, parse_int=number)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}).") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}, line {error.lineno}: not valid JSON: {error.msg}.") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply (limit {MAX_DEPTH} levels).") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a configuration is one mapping of keys to values, this is a {_name(values)}.")
    if sum(1 for _ in _walk(path, values, 0)) > MAX_VALUES:
        raise ConfigError(f"{path}: more than {MAX_VALUES:,} values. Is this data?")
    return ConfigFile(path, values)


def _walk(path: Path, value: Any, depth: int) -> Iterator[Any]:
    if depth > MAX_DEPTH:
        raise ConfigError(f"{path}: nested too deeply (limit {MAX_DEPTH} levels).")
    yield value
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        yield from _walk(path, child, depth + 1)


def _read_yaml(path: Path, content: bytes) -> ConfigFile:
    file = _construct(path, content)
    values = file.values["value"]
    if values is None:
        return ConfigFile(path, {})
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a configuration is one mapping of keys to values, this is a {_name(values)}.")
    return ConfigFile(
        path,
        values,
        {key[1:]: line for key, line in file.lines.items() if len(key) > 1},
        {key[1:]: text for key, text in file.spelled.items() if len(key) > 1},
    )


def _construct(path: Path, content: bytes | str) -> ConfigFile:
    """Parse to nodes, check the nodes, construct values. The value stands under the key `value`."""
    try:
        _check_depth(path, content)
        loader = Loader(content)
        try:
            node = loader.get_single_node()
            if node is None:
                return ConfigFile(path, {"value": None})
            lines: dict[KeyPath, int] = {}
            spelled: dict[KeyPath, str] = {}
            characters = 0
            for count, (key, child, line) in enumerate(_nodes(path, node, ("value",), line=1)):
                characters += len(child.value) if isinstance(child, yaml.ScalarNode) else 0
                if count > MAX_VALUES or characters > MAX_CHARACTERS:
                    raise ConfigError(
                        f"{path}: its aliases expand to more than {MAX_VALUES:,} values or {MAX_CHARACTERS:,} characters."
                    )
                lines.setdefault(key, line)
                if isinstance(child, yaml.ScalarNode) and child.style is None:
                    spelled.setdefault(key, child.value)
            value = loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        what = ": ".join(part for part in (error.context, error.problem) if part)
        tab = " A tab stands there, and YAML takes none: indent with spaces." if "'\\t'" in what else ""
        raise ConfigError(f"{path}{where}: not valid YAML: {printable(what)}.{tab}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not readable as YAML: {printable(str(error))}") from None
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path}: a value cannot be read: {printable(masked(str(error)))}") from None
    return ConfigFile(path, {"value": value}, lines, spelled)


def _check_depth(path: Path, content: bytes | str) -> None:
    # Parsing to events is iterative; composing nodes is recursive, so the depth is checked before it.
    depth = 0
    for event in yaml.parse(content, Loader=Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                line = event.start_mark.line + 1 if event.start_mark is not None else "?"
                raise ConfigError(f"{path}, line {line}: nested too deeply (limit {MAX_DEPTH} levels).")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _nodes(
    path: Path, node: yaml.Node, key: KeyPath, line: int, above: frozenset[int] = frozenset()
) -> Iterator[tuple[KeyPath, yaml.Node, int]]:
    """Every value with its key path and line, aliases expanded; duplicate keys and cycles are errors."""
    if id(node) in above:
        raise ConfigError(f"{path}, line {line}: `{printable(str(key[-1]))}` contains itself by an alias.")
    yield key, node, line
    above = above | {id(node)}
    if len(above) > MAX_DEPTH:
        raise ConfigError(f"{path}, line {line}: nested too deeply (limit {MAX_DEPTH} levels).")
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield from _nodes(path, child, (*key, index), child.start_mark.line + 1, above)
    elif isinstance(node, yaml.MappingNode):
        seen: set[Hashable] = set()
        merges: list[yaml.Node] = []
        for name, child in node.value:
            here = name.start_mark.line + 1
            if name.tag == "tag:yaml.org,2002:merge":
                merges += child.value if isinstance(child, yaml.SequenceNode) else [child]
                continue
            if not isinstance(name, yaml.ScalarNode):
                raise ConfigError(f"{path}, line {here}: a key must be a word, not a {name.id}.")
            if name.value in seen:
                raise ConfigError(f"{path}, line {here}: the key `{printable(name.value)}` is given twice. Remove one.")
            seen.add(name.value)
            yield from _nodes(path, child, (*key, name.value), here, above)
        # Merged keys come last: a key of the mapping itself wins, and with it its line.
        for merged in merges:
            # The merged mapping itself is yielded again, so that a merge of nothing counts as a value too.
            yield from _nodes(path, merged, key, line, above)


def _name(value: Any) -> str:
    return {list: "list", str: "text", int: "number", float: "number", bool: "boolean"}.get(type(value), "value")
