"""YAML with the place of every key, as the trainers read it (PyYAML's safe loader, `1e-5` a number), but forgiving.

A trainer takes the last of two equal keys; here both are kept in mind. Tags are never carried out: what they would make is
unknown. Depth and the number of values are limited, so that no file costs more than a moment.
"""

from collections.abc import Iterator
from typing import Any

import yaml

from dynotune.audit.facts.setting import Unknown
from dynotune.audit.lines import lines_of
from dynotune.audit.place import Place
from dynotune.audit.read.configs.parsed import ROOT, NotReadableError, Parsed, below
from dynotune.config.reading.files import MAX_CHARACTERS, MAX_DEPTH, MAX_VALUES, Loader
from dynotune.printable import printable

_PLAIN = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null"))
_MERGE = "tag:yaml.org,2002:merge"


# PyYAML ends lines at these, which YAML 1.2, editors and all else here do not: one of private use stands there meanwhile.
_NO_LINE_ENDS = str.maketrans("\x85\u2028\u2029", "\ue385\ue328\ue329")
_AS_THEY_WERE = {after: before for before, after in _NO_LINE_ENDS.items()}


def read_yaml(file: str, text: str) -> Parsed:
    """Raises `NotReadableError` for text that is no YAML, too deep, or too much when its aliases are written out."""
    text = text.translate(_NO_LINE_ENDS)
    try:
        if not _is_flat(text):
            _check_depth(file, text)
        loader = Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return Parsed({}, {ROOT: Place(file, 1, 1)}, _comments(text, []))
            reader = _Reader(file, loader)
            values = reader.value(node, ROOT, frozenset())
            reader.places[ROOT] = _span(file, node, node, ROOT)
            return Parsed(values, reader.places, _comments(text, reader.scalars), reader.repeated)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark is not None else Place(file)
        what = ": ".join(part for part in (error.context, error.problem) if part)
        raise NotReadableError(place, f"it is no valid YAML: {printable(what, 200)}") from None
    except yaml.YAMLError as error:
        raise NotReadableError(Place(file), f"it is not readable as YAML: {printable(str(error), 200)}") from None


def _is_flat(text: str) -> bool:
    """Whether it cannot nest too deeply, by a bound that costs nothing: one pass of the parser less for most files."""
    opened = text.count("[") + text.count("{")
    deepest = max(
        (2 * (len(line) - len(line.lstrip(" "))) + line.count("- ") + line.count("? ") for line in lines_of(text)),
        default=0,
    )
    return opened + deepest + 2 < MAX_DEPTH


def _check_depth(file: str, text: str) -> None:
    # Parsing to events is iterative; composing nodes is recursive, so the depth is checked before it.
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                line = event.start_mark.line + 1 if event.start_mark is not None else 0
                raise NotReadableError(Place(file, line), f"it nests deeper than {MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _span(file: str, start: yaml.Node, end: yaml.Node, key: str) -> Place:
    first, last = start.start_mark, end.end_mark
    return Place(file, first.line + 1, first.column + 1, last.line + 1, last.column + 1, key)


class _Reader:
    def __init__(self, file: str, loader: Loader) -> None:
        self.file, self.loader = file, loader
        self.places: dict[str, Place] = {}
        self.repeated: dict[str, tuple[Place, ...]] = {}
        self.scalars: list[yaml.ScalarNode] = []
        self.count = self.characters = 0

    def value(self, node: yaml.Node, path: str, above: frozenset[int]) -> Any:
        place = Place(self.file, node.start_mark.line + 1, key=path)
        if id(node) in above:
            raise NotReadableError(place, "it contains itself by an alias")
        if len(above) >= MAX_DEPTH:
            raise NotReadableError(place, f"it nests deeper than {MAX_DEPTH} levels")
        self.count += 1
        self.characters += len(path) + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
        if self.count > MAX_VALUES or self.characters > MAX_CHARACTERS:
            raise NotReadableError(
                place, f"it comes to more than {MAX_VALUES:,} values or {MAX_CHARACTERS:,} characters"
            )
        above = above | {id(node)}
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, above)
        if isinstance(node, yaml.SequenceNode):
            return list(self._items(node, path, above))
        assert isinstance(node, yaml.ScalarNode)
        self.scalars.append(node)
        node.value = node.value.translate(_AS_THEY_WERE)
        return self._scalar(node)

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        if node.tag not in _PLAIN:
            return Unknown(f"the tag `{printable(node.tag, 60)}` makes it, and no tag is carried out")
        try:
            return self.loader.construct_object(node)
        except (ValueError, yaml.YAMLError):
            return node.value

    def _items(self, node: yaml.SequenceNode, path: str, above: frozenset[int]) -> Iterator[Any]:
        for index, child in enumerate(node.value):
            here = below(path, index)
            self.places[here] = _span(self.file, child, child, here)
            yield self.value(child, here, above)

    def _mapping(self, node: yaml.MappingNode, path: str, above: frozenset[int]) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merges: list[yaml.Node] = []
        for name, child in node.value:
            if name.tag == _MERGE:
                merges += child.value if isinstance(child, yaml.SequenceNode) else [child]
                continue
            if not isinstance(name, yaml.ScalarNode):
                raise NotReadableError(Place(self.file, name.start_mark.line + 1), "a key is a list or a mapping")
            self.scalars.append(name)
            name.value = name.value.translate(_AS_THEY_WERE)
            key, here = name.value, below(path, name.value)
            place = _span(self.file, name, child, here)
            if key in own:
                self.repeated[here] = (*self.repeated.get(here, (self.places[here],)), place)
            self.places[here] = place
            own[key] = self.value(child, here, above)
        merged: dict[str, Any] = {}
        for source in reversed(merges):
            # Keys of the mapping itself win, and the first of several merged mappings: their places are kept.
            kept = dict(self.places)
            found = self.value(source, path, above)
            merged |= found if isinstance(found, dict) else {}
            self.places |= {
                key: place for key, place in kept.items() if key.removeprefix(f"{path}.").split(".")[0] in own
            }
        return {**merged, **own}


def _comments(text: str, scalars: list[yaml.ScalarNode]) -> dict[int, str]:
    """By line. A `#` begins one after white space, outside of scalars."""
    inside: dict[int, list[tuple[int, int]]] = {}
    for node in scalars:
        first, last = node.start_mark, node.end_mark
        for line in range(first.line, last.line + 1):
            start = first.column if line == first.line else 0
            end = last.column if line == last.line else len(text)
            if node.style in ("|", ">") and line == first.line:
                continue  # the header of a block may have a comment
            inside.setdefault(line, []).append((start, end))
    found = {}
    for number, words in enumerate(lines_of(text)):
        at = words.find("#")
        while at >= 0:
            free = at == 0 or words[at - 1] in " \t"
            if free and not any(start <= at < end for start, end in inside.get(number, ())):
                found[number + 1] = words[at + 1 :].strip()
                break
            at = words.find("#", at + 1)
    return found
