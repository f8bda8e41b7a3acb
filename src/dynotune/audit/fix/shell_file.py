"""A change of a flag in a shell script: its words, and no others."""

import shlex
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tree_sitter import Node

from dynotune.audit.change import Change, Edit
from dynotune.audit.fix.splice import NotAppliedError
from dynotune.audit.shell_grammar import nodes, parse_shell

Word = tuple[int, int, str, bool]
"""First byte, the byte behind the last, text, and whether the shell takes it as it stands (but for quotes)."""

PLAIN = frozenset({"word", "number", "raw_string", "string", "string_content", "concatenation", "command_name", '"'})

NO_WORDS = ("variable_assignment", "file_redirect", "heredoc_redirect", "herestring_redirect")


def changed_shell(text: str, change: Change) -> str:
    """Raises `NotAppliedError`."""
    source = text.encode("utf-8", "surrogatepass")
    words = _command(source, change.place.line, change.place.column)
    name = change.name.lstrip("-")
    found = [i for i, word in enumerate(words) if i and _name(word[2]) == _alike(name)]
    if len(found) > 1:
        raise NotAppliedError(f"`--{name}` is given {len(found)} times there, of which the last counts")
    at = found[0] if found else None
    if at is None:
        if change.edit is not Edit.SET:
            raise NotAppliedError(f"`--{name}` is not found there")
        after = _insert(source, words, f"--{name}", change.value)
    else:
        after = _edit(source, words, at, change)
    if _broken(after) and not _broken(source):
        raise NotAppliedError("the script would no longer parse")
    return after.decode("utf-8", "surrogatepass")


def _alike(name: str) -> str:
    return name.replace("-", "_")


def _name(word: str) -> str:
    """Of a flag, without its dashes and value; empty for other words."""
    return _alike(word.lstrip("-").partition("=")[0]) if word.startswith("--") else ""


def _edit(source: bytes, words: list[Word], at: int, change: Change) -> bytes:
    start, end, word, _ = words[at]
    values = at + 1
    while values < len(words) and not words[values][2].startswith("-"):
        values += 1
    flag, equals, _ = word.partition("=")
    if change.edit is not Edit.RENAME:
        # A word that the shell expands may be several, or none, and somebody else's to decide.
        of_it = words[at : at + 1 if equals else values]
        decided = next((one[2] for one in of_it if not one[3]), "")
        if decided:
            raise NotAppliedError(f"`{decided}` is no plain value: change it where it is decided")
        if change.edit is Edit.SET and len(of_it) > 2 and not isinstance(change.value, list | tuple):
            raise NotAppliedError(f"`{flag}` has several values there")
    if change.edit is Edit.REMOVE:
        last = end if equals else words[values - 1][1]
        return source[: words[at - 1][1]] + source[last:]
    if change.edit is Edit.RENAME:
        new = f"--{change.to.lstrip('-')}"
        return source[:start] + new.encode() + source[start + len(flag.encode()) :]
    value = _written(change.value).encode()
    if equals:
        return source[: start + len(flag.encode()) + 1] + value + source[end:]
    if values == at + 1:
        return source[:end] + b" " + value + source[end:]
    return source[: words[at + 1][0]] + value + source[words[values - 1][1] :]


def _insert(source: bytes, words: list[Word], flag: str, value: Any) -> bytes:
    end = words[-1][1]
    gaps = [source[before[1] : after[0]] for before, after in pairwise(words)]
    broken = [gap for gap in gaps if b"\n" in gap]
    return source[:end] + (broken[-1] if broken else b" ") + f"{flag} {_written(value)}".encode() + source[end:]


def _written(value: Any) -> str:
    if value is None or isinstance(value, dict):
        raise NotAppliedError("its value cannot be given as a flag")
    if isinstance(value, list | tuple):
        return " ".join(shlex.quote(str(one)) for one in value)
    return shlex.quote(str(value))


def _command(source: bytes, line: int, column: int) -> list[Word]:
    """The words of the innermost command at a place (counted from 1; without a column: the first of its line)."""
    found = [node for node in _commands(_parsed(source)) if _covers(source, node, line, column)]
    if not found:
        raise NotAppliedError("no command stands there")
    command = max(found, key=lambda node: node.start_byte)
    words = (one for one in command.children if one.type not in NO_WORDS)
    return [
        (one.start_byte, one.end_byte, source[one.start_byte : one.end_byte].decode("utf-8"), _is_plain(one))
        for one in words
    ]


def _is_plain(node: Node) -> bool:
    return node.type in PLAIN and all(map(_is_plain, node.children))


def _covers(source: bytes, node: Node, line: int, column: int) -> bool:
    first, last = node.start_point, node.end_point
    if not column:
        return first.row + 1 <= line <= last.row + 1
    start = source.split(b"\n")[line - 1] if line <= source.count(b"\n") + 1 else b""
    byte = len(start.decode(errors="replace")[: column - 1].encode())
    return (first.row, first.column) <= (line - 1, byte) <= (last.row, last.column)


def _commands(node: Node) -> Iterator[Node]:
    return (one for one in nodes(node) if one.type == "command")


def _parsed(source: bytes) -> Node:
    return parse_shell(source)


def _broken(source: bytes) -> bool:
    return _parsed(source).has_error
