"""Seeded mutations: of bytes, of JSON as a tree, and of text by words that have broken readers before.

Everything follows from the `random.Random` that is passed, so a case is repeated by its number.
"""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

Chance = random.Random

ESCAPES = ("\x1b[2J\x1b]0;title\x07", "\x9b31m", "\u202e", "\r", "[red]", "[link=x]y[/link]", "{{ 7*7 }}", "<script>")
PATHS = ("../../outside", "/etc/passwd", "..\\..\\x", "~/x", "file:///etc/passwd", "a/../../b", "\0", "con", "x" * 5000)
NUMBERS = (0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 1e308, 1e-320, float("nan"), float("inf"), 10**30, 0.1)
WORDS = (
    *ESCAPES,
    *PATHS,
    "",
    " ",
    "null",
    "true",
    "1e5",
    "-",
    "\ud800",
    "\ufeff",
    "e\u0301",
    "\u2028",
    "\0",
    "a" * 10_000,
)


def value(chance: Chance, depth: int = 0) -> Any:
    """A JSON value that the place did not ask for."""
    kind = chance.randrange(8 if depth < 3 else 5)
    if kind == 0:
        return chance.choice(NUMBERS)
    if kind == 1:
        return chance.choice(WORDS)
    if kind == 2:
        return chance.choice((None, True, False))
    if kind == 3:
        return chance.choice(([], {}, [[]], [None], {"": None}))
    if kind == 4:
        return "".join(chr(chance.choice((chance.randrange(1, 128), chance.randrange(128, 0xD800)))) for _ in range(9))
    if kind == 5:
        return [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind == 6:
        return {str(value(chance, 3)): value(chance, depth + 1) for _ in range(chance.randrange(4))}
    nested: Any = value(chance, 3)
    for _ in range(chance.choice((3, 40, 2_000))):
        nested = [nested] if chance.random() < 0.5 else {"a": nested}
    return nested


def _nodes(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value in a tree."""
    found: list[tuple[Any, Any]] = []
    todo, seen = [tree], set()
    while todo:
        one = todo.pop()
        if id(one) in seen:  # moved into itself
            continue
        seen.add(id(one))
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        for key in keys:
            found.append((one, key))
            todo.append(one[key])
    return found


def tree(chance: Chance, content: bytes) -> bytes:
    """A JSON document with one to three of its values replaced, removed, moved or copied."""
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError):
        return bytes_(chance, content)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        nodes = _nodes(whole)
        # Places near the top matter most, and a vocabulary has a hundred thousand others.
        top = [node for node in nodes if node[0] is whole]
        if not nodes:
            break
        holder, key = chance.choice(top if top and chance.random() < 0.5 else nodes)
        what = chance.randrange(6)
        if what == 0:
            del holder[key]
        elif what == 1:
            other, name = chance.choice(nodes)
            if (isinstance(other, dict) and name in other) or (isinstance(other, list) and name < len(other)):
                holder[key] = other[name]
        elif what == 2 and isinstance(holder, list):
            holder.insert(key, value(chance))
        elif what == 2 and isinstance(holder, dict):
            holder[str(value(chance, 3))] = value(chance)
        elif what == 3 and isinstance(holder[key], str):
            text = holder[key]
            at = chance.randrange(len(text) + 1)
            holder[key] = text[:at] + chance.choice(WORDS) + text[at:]
        elif what == 4 and isinstance(holder[key], int | float):
            holder[key] = chance.choice(NUMBERS)
        else:
            holder[key] = value(chance)
    try:
        return json.dumps(whole, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    except (RecursionError, ValueError):  # too deep for the encoder, or moved into itself
        return bytes_(chance, content)


def bytes_(chance: Chance, content: bytes) -> bytes:
    """The same bytes with some flipped, cut out, doubled, put in, or the rest cut off."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(len(data) + 1)
        length = chance.choice((1, 1, 2, 7, 64, 1000))
        what = chance.randrange(6)
        if what == 0 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            del data[at : at + length]
        elif what == 2:
            data[at:at] = data[at : at + length]
        elif what == 3:
            data[at:at] = chance.choice(WORDS).encode("utf-8", "surrogatepass")
        elif what == 4:
            data[at:at] = chance.randbytes(length)
        elif chance.random() < 0.3:
            del data[at:]
    return bytes(data)


def _json(one: Any) -> str:
    try:
        return json.dumps(one)
    except RecursionError:
        return "[" * 5000


YAML_WORDS = (
    "!!python/object/apply:os.system ['true']", "!!python/name:os.system", "!!binary x", "!!set {a, b}", "!<tag:x> y",
    "&a [*a]", "*a", "&a b", "<<: *a", "<<: {a: 1}", "? [a, b]", "|\n  text\n", ">-\n  x\n", "---\n", "...\n", "%YAML 9.9\n",
    "%TAG ! x\n", "{", "}", "[", "]", ": ", "- ", "\t", "#", "'", '"', "0x" + "f" * 200, "1_000", "1:30", "0o7", ".inf",
    ".nan", "~", "yes", "2026-11-20", "1" * 500, "\N{BYTE ORDER MARK}", "\x85", "=", "!", "!!int x", "!!float y", "!!null z",
)  # fmt: skip


def yaml_text(chance: Chance, content: bytes) -> bytes:
    """A YAML text with lines moved, doubled or indented, and values or tags from the list above put in."""
    lines = content.decode("utf-8", "replace").split("\n")
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        at = chance.randrange(len(lines))
        key, colon, _ = lines[at].partition(": ")
        what = chance.randrange(7)
        if what == 0 and colon:
            lines[at] = f"{key}: {chance.choice(YAML_WORDS)}"
        elif what == 1 and colon:
            lines[at] = f"{key}: {_json(value(chance))}"
        elif what == 2:
            lines[at] = " " * chance.choice((1, 2, 40)) + lines[at]
        elif what == 3:
            lines.insert(at, chance.choice(lines))
        elif what == 4:
            del lines[at]
            lines = lines or [""]
        elif what == 5 and colon:
            lines[at] = f"{key}: {chance.choice(WORDS)}"
        else:
            cut = chance.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:cut] + chance.choice(YAML_WORDS) + lines[at][cut:]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def mixed(*ways: Callable[[Chance, bytes], bytes]) -> Callable[[Chance, bytes], bytes]:
    """One of several ways for each case."""

    def mutate(chance: Chance, content: bytes) -> bytes:
        return chance.choice(ways)(chance, content)

    return mutate


def lines_of(way: Callable[[Chance, bytes], bytes]) -> Callable[[Chance, bytes], bytes]:
    """Apply a way to one line of a file of JSON lines, and now and then move, double or join lines."""

    def mutate(chance: Chance, content: bytes) -> bytes:
        rows: Sequence[bytes] = content.split(b"\n")
        rows = list(rows)
        at = chance.randrange(len(rows))
        rows[at] = way(chance, rows[at])
        if chance.random() < 0.2:
            rows.insert(at, chance.choice(rows))
        return chance.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r", b" ")).join(rows)

    return mutate
