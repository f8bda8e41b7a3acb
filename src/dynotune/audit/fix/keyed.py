"""A change of a key in YAML or JSON: the characters of that entry change, and no others.

The text is edited where the parser says that a key and its value stand, and then read again: unless it says exactly what
was asked for, and everything else as before, nothing is changed. Anchors, merges and repeated keys end there.
"""

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import yaml

from dynotune.audit.change import Change, Edit
from dynotune.audit.fix.splice import NotAppliedError
from dynotune.audit.lines import lines_of
from dynotune.config.reading.files import Loader

Entry = tuple[yaml.ScalarNode, yaml.Node]


def changed_yaml(text: str, change: Change) -> str:
    """Raises `NotAppliedError`."""
    keyed = _Keyed(text, text, _yaml_value, _load)
    if keyed.is_block_mapping(change):
        return _changed_inside(text, change)
    return keyed.changed(change)


def _changed_inside(text: str, change: Change) -> str:
    """A mapping of several lines is given another by its keys, so that their layout stays."""
    path = change.place.key
    old = _at(_load(text), path)
    for key in [key for key in old if key not in change.value]:
        text = changed_yaml(text, Change(Edit.REMOVE, replace(change.place, key=f"{path}.{key}"), str(key)))
    for key, value in change.value.items():
        if key not in old or not _same(old[key], value):
            place = replace(change.place, key=f"{path}.{key}" if key in old else path)
            text = changed_yaml(text, Change(Edit.SET, place, str(key), value))
    return text


def changed_json(text: str, change: Change) -> str:
    """JSON is YAML but for tabs, which only stand between values: with spaces in their places, offsets are the same."""

    def value(given: Any, node: yaml.Node | None) -> str:
        return json.dumps(given, ensure_ascii=False)

    def load(given: str) -> Any:
        try:
            return json.loads(given)
        except ValueError as error:
            raise NotAppliedError(f"it would no longer be JSON: {error}") from None

    return _Keyed(text, text.replace("\t", " "), value, load).changed(change)


def _load(text: str) -> Any:
    try:
        return yaml.load(text, Loader)  # noqa: S506  (a safe loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NotAppliedError(f"it would no longer be YAML: {lines_of(str(error))[0]}") from None


class _Keyed:
    def __init__(
        self, text: str, shape: str, value: Callable[[Any, yaml.Node | None], str], load: Callable[[str], Any]
    ):
        self.text, self.value, self.load = text, value, load
        try:
            self.root = yaml.compose(shape, Loader)
        except (yaml.YAMLError, RecursionError) as error:
            raise NotAppliedError(f"it cannot be parsed: {lines_of(str(error))[0]}") from None

    def is_block_mapping(self, change: Change) -> bool:
        """Whether a mapping is to stand where one of several lines stands."""
        if change.edit is not Edit.SET or not isinstance(change.value, dict) or not change.value:
            return False
        _, entry = self._find(change.place.key)
        if entry is None or entry[0].value != change.name:
            return False
        return isinstance(entry[1], yaml.MappingNode) and not entry[1].flow_style

    def changed(self, change: Change) -> str:
        path = change.place.key
        parent, entry = self._find(path)
        above = path
        if entry is not None and entry[0].value == change.name:
            above = path[: -len(change.name)].removesuffix(".")
        else:  # the place is of the mapping that shall hold it
            parent = entry[1] if entry is not None else parent
            entry = None
            entry = next((one for one in self._entries(parent) if one[0].value == change.name), None)
        match change.edit:
            case Edit.SET:
                after = self._set(parent, entry, change)
            case Edit.REMOVE:
                after = self._remove(parent, self._there(entry, change))
            case Edit.RENAME:
                key = self._there(entry, change)[0]
                name = self._key(change.to, key)
                after = self.text[: key.start_mark.index] + name + self.text[key.end_mark.index :]
        self._require(after, above, change)
        return after

    @staticmethod
    def _there(entry: Entry | None, change: Change) -> Entry:
        if entry is None:
            raise NotAppliedError(f"`{change.name}` is not found there")
        return entry

    def _entries(self, node: yaml.Node | None) -> list[Entry]:
        if node is None:
            return []
        if not isinstance(node, yaml.MappingNode):
            raise NotAppliedError("what shall hold it is no mapping")
        return [(key, child) for key, child in node.value if isinstance(key, yaml.ScalarNode)]

    def _find(self, path: str) -> tuple[yaml.Node | None, Entry | None]:
        """The mapping that holds the last key of a path, and the entry; a mapping alone for the path of a list's item."""
        node, parent, entry, left = self.root, self.root, None, path
        while left:
            if isinstance(node, yaml.SequenceNode):
                number, _, left = left.partition(".")
                if not number.isdigit() or int(number) >= len(node.value):
                    raise NotAppliedError(f"`{path}` is not found there")
                node = parent = node.value[int(number)]
                entry = None
                continue
            fits = [one for one in self._entries(node) if left == one[0].value or left.startswith(f"{one[0].value}.")]
            if not fits:
                raise NotAppliedError(f"`{path}` is not found there")
            entry = max(fits, key=lambda one: len(one[0].value))
            parent, node = node, entry[1]
            left = left[len(entry[0].value) + 1 :]
        return parent, entry

    def _set(self, parent: yaml.Node | None, entry: Entry | None, change: Change) -> str:
        if entry is None:
            return self._add(parent, change)
        key, node = entry
        _require_plain(node)
        start, end = node.start_mark.index, node.end_mark.index
        if isinstance(node, yaml.ScalarNode) and start == end:  # `key:` without a value
            colon = self.text.find(":", key.end_mark.index) + 1
            return f"{self.text[:colon]} {self.value(change.value, None)}{self.text[colon:]}"
        is_block = not getattr(node, "flow_style", True) or getattr(node, "style", None) in ("|", ">")
        if is_block and not (isinstance(node, yaml.ScalarNode) and node.style is None):
            raise NotAppliedError("its value goes over several lines")
        return self.text[:start] + self.value(change.value, node) + self.text[end:]

    def _add(self, parent: yaml.Node | None, change: Change) -> str:
        name = self._key(change.name, None)
        if parent is None:  # an empty file
            start = self.text if not self.text or self.text.endswith("\n") else f"{self.text}\n"
            return f"{start}{name}: {self.value(change.value, None)}\n"
        entries = self._entries(parent)
        given = f"{name}: {self.value(change.value, None)}"
        assert isinstance(parent, yaml.MappingNode)
        if parent.flow_style:
            return self._add_in_flow(parent, entries, given)
        simple = [
            (key, node)
            for key, node in entries
            if key.start_mark.line == node.end_mark.line and getattr(node, "style", None) not in ("|", ">")
        ]
        if not simple:
            first = entries[0][0].start_mark
            at = first.index - first.column
            if self.text[at : first.index].strip():
                raise NotAppliedError("there is no line after which it could stand")
            return f"{self.text[:at]}{' ' * first.column}{given}{self._line_end(at)}{self.text[at:]}"
        key, node = simple[-1]
        end = self.text.find("\n", node.end_mark.index)
        line = " " * key.start_mark.column + given
        if end < 0:
            return f"{self.text}\n{line}" if not self.text.endswith("\n") else f"{self.text}{line}\n"
        return f"{self.text[: end + 1]}{line}{self._line_end(end)}{self.text[end + 1 :]}"

    def _add_in_flow(self, parent: yaml.MappingNode, entries: list[Entry], given: str) -> str:
        if not entries:
            at = parent.start_mark.index + 1
            return self.text[:at] + given + self.text[at:]
        end = entries[-1][1].end_mark.index
        between = self.text[parent.start_mark.index + 1 : entries[0][0].start_mark.index]
        separator = f",{between}" if "\n" in between and not between.strip() else ", "
        return f"{self.text[:end]}{separator}{given}{self.text[end:]}"

    def _remove(self, parent: yaml.Node | None, entry: Entry) -> str:
        assert isinstance(parent, yaml.MappingNode)
        key, node = entry
        _require_plain(node)
        if parent.flow_style:
            entries = self._entries(parent)
            number = entries.index(entry)
            if number + 1 < len(entries):
                return self.text[: key.start_mark.index] + self.text[entries[number + 1][0].start_mark.index :]
            start = entries[number - 1][1].end_mark.index if number else key.start_mark.index
            return self.text[:start] + self.text[node.end_mark.index :]
        start = key.start_mark.index - key.start_mark.column
        if self.text[start : key.start_mark.index].strip():
            raise NotAppliedError("it begins an item of a list")
        end = self.text.find("\n", _end(node))
        return self.text[:start] + (self.text[end + 1 :] if end >= 0 else "")

    def _key(self, name: str, old: yaml.ScalarNode | None) -> str:
        return self.value(name, old)

    def _line_end(self, near: int) -> str:
        end = self.text.find("\n", near)
        return "\r\n" if end > 0 and self.text[end - 1] == "\r" else "\n"

    def _require(self, after: str, above: str, change: Change) -> None:
        """Raises `NotAppliedError` unless the text says what was asked for, and nothing else otherwise than before."""
        wanted = deepcopy(self.load(self.text))
        wanted = {} if wanted is None else wanted
        holder = _at(wanted, above)
        if not isinstance(holder, dict):
            raise NotAppliedError("what shall hold it is no mapping")
        if change.edit is Edit.SET:
            holder[change.name] = change.value
        elif change.edit is Edit.REMOVE:
            holder.pop(change.name, None)
        else:
            renamed = {change.to if key == change.name else key: value for key, value in holder.items()}
            holder.clear()
            holder.update(renamed)
        found = self.load(after)
        if not _same({} if found is None else found, wanted):
            raise NotAppliedError("what else stands in the file (an anchor, a merge, a repeated key) would change too")


_DECIDED = re.compile(r"\$[({\w]|\{\{|\{%")
"""What OmegaConf, the shell or a template puts there."""


def _require_plain(node: yaml.Node) -> None:
    """Raises `NotAppliedError` for a value that is decided elsewhere."""
    if isinstance(node, yaml.ScalarNode) and _DECIDED.search(node.value):
        raise NotAppliedError(f"`{node.value[:60]}` is no plain value: change it where it is decided")


def _same(one: Any, other: Any) -> bool:
    """Whether they are equal, and of the same types: `True == 1`. The order of keys does not matter."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other) or one != one  # what is no number equals nothing


def _at(values: Any, path: str) -> Any:
    """What stands at a path of keys, whose keys may hold dots."""
    if not path:
        return values
    if isinstance(values, list):
        number, _, rest = path.partition(".")
        return _at(values[int(number)], rest)
    fits = [key for key in values if path == str(key) or path.startswith(f"{key}.")] if isinstance(values, dict) else []
    if not fits:
        raise NotAppliedError(f"`{path}` is not found there")
    key = max(fits, key=lambda one: len(str(one)))
    return _at(values[key], path[len(str(key)) + 1 :])


def _end(node: yaml.Node) -> int:
    """Where the last character of a value stands: a block's own end is where the next thing begins."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    end: int = node.end_mark.index
    return end - 1 if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">") else end


def _quoted(given: str) -> str:
    return str(yaml.safe_dump(given, default_style='"', width=10**6, allow_unicode=True)).rstrip("\n")


_PLAIN = re.compile(r"[A-Za-z_./][\w./+-]*")


def _yaml_value(given: Any, node: yaml.Node | None) -> str:
    """As YAML has it, in the quotes of what stood there."""
    if isinstance(given, str):
        if isinstance(node, yaml.ScalarNode) and node.style == '"':
            return _quoted(given)
        if isinstance(node, yaml.ScalarNode) and node.style == "'" and given.isprintable():
            return "'" + given.replace("'", "''") + "'"
        if _PLAIN.fullmatch(given) and yaml.safe_load(given) == given:
            return given
        return _quoted(given)
    text = yaml.safe_dump(given, default_flow_style=True, width=10**6, sort_keys=False)
    return text.removesuffix("...\n").rstrip("\n")
