"""Strict JSON: what a row must be, and in words what is wrong with one that is not.

Python's `json` accepts `NaN`, keeps the last of two equal keys and passes lone surrogates on to a later crash; here
each of these is a reason. It stays fast: some 90 MB a second, where a tokenizer does a few.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from dynotune.data.rows import BadRow, Place
from dynotune.printable import beginning, printable

MAX_DEPTH = 200
"""Levels of nesting. Deeper rows would exhaust the stack of what reads them later."""

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class _DuplicateKeyError(ValueError):
    pass


class _NotANumberError(ValueError):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKeyError(key)
            seen.add(key)
    return values


def _no_constants(name: str) -> Any:
    raise _NotANumberError(name)


_decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constants)


def parse_object(raw: bytes, place: Place, offset: int | None = None, where: str = "line") -> dict[str, Any] | BadRow:
    """The JSON object that `raw` holds, or why it holds none. Never raises.

    `offset` is where `raw` begins in its file, for messages; `where` is what `raw` is called in them.
    """

    def bad(reason: str, detail: str) -> BadRow:
        return BadRow(place, reason, detail, beginning(raw))

    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        in_file = "" if offset is None else f" (byte {offset + error.start:,} of the file)"
        sequence = " ".join(f"{byte:02X}" for byte in raw[error.start : max(error.end, error.start + 1)])
        detail = f"bytes {sequence} at offset {error.start:,} of the {where}{in_file} are not UTF-8: {error.reason}"
        return bad("invalid-utf8", detail)
    try:
        values = _decoder.decode(text)
    except _DuplicateKeyError as error:
        key = printable(str(error), 60)
        return bad("duplicate-key", f"the key '{key}' stands twice in one object, and which value is meant is unclear")
    except _NotANumberError as error:
        return bad("nan-literal", f"{error} is not JSON; leave the value out or use null")
    except json.JSONDecodeError as error:
        return bad(*_why_not_json(text, error, where))
    except RecursionError:
        return bad("too-deeply-nested", f"more than {MAX_DEPTH} levels of nesting")
    except ValueError as error:  # an integer longer than Python converts
        return bad("number-too-long", printable(str(error), 120))
    if not isinstance(values, dict):
        return bad("line-is-not-an-object", f"a row must be a JSON object, and this is {_json_type(values)}")
    if text.count("{") + text.count("[") > MAX_DEPTH and _deeper_than(MAX_DEPTH, values):
        return bad("too-deeply-nested", f"more than {MAX_DEPTH} levels of nesting")
    if _SURROGATE_ESCAPE.search(text) and (surrogate := _lone_surrogate(values)):
        return bad("lone-surrogate", f"the escape {surrogate} is half of a character and cannot be encoded in UTF-8")
    return values


def _why_not_json(text: str, error: json.JSONDecodeError, where: str) -> tuple[str, str]:
    """A name and a sentence for a syntax error."""
    at = f"at column {error.pos + 1:,}"
    before, rest = text[: error.pos].rstrip(), text[error.pos :].lstrip()
    if text.lstrip().startswith(("{'", "[{'")) or rest.startswith(("True", "False", "None")):
        return "python-repr-not-json", f"this is Python's notation, not JSON ({at}); write rows with json.dumps"
    if "\0" in text[:16]:
        return "nul-bytes", f"the {where} begins with NUL bytes, which a crash or a full disk leaves behind"
    if error.msg == "Extra data":
        if rest.startswith(("{", "[")):
            return "two-objects-on-one-line", f"a second value begins {at}; each row needs a line of its own"
        return "text-after-object", f"after the object stands '{printable(rest, 20)}' {at}"
    if (before.endswith(",") and rest.startswith(("]", "}"))) or "trailing comma" in error.msg:
        return "trailing-comma", f"a comma with nothing after it {at}"
    if not rest or error.msg.startswith("Unterminated string"):
        return "truncated-json", f"the {where} ends inside a value (a row cut short, or a raw line break in a string)"
    if error.msg.startswith("Invalid control character"):
        return "raw-control-character", f"{printable(rest[:1])} {at} must be escaped inside a string"
    return "invalid-json", f"{error.msg} {at}"


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names[type(value)]


def _deeper_than(limit: int, value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return False
    return True


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _lone_surrogate(values: Any) -> str | None:
    try:
        json.dumps(values, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        return f"\\u{ord(error.object[error.start]):04x}"
    return None
