"""Clocks of a script, and the speeds that are made of the time since."""

import ast
import re
from collections.abc import Iterator, Sequence

CLOCK = (
    r"(?:(?:time|timeit)\.)?(?:(?:time|perf_counter|monotonic)(?:_ns)?|default_timer)\(\)|(?:datetime\.){1,2}now\(\)"
)
CLOCK = f"(?:{CLOCK})"
_START = re.compile(rf"^\s*(?P<name>[\w.]+)(?:\s*,\s*\w+)*\s*=\s*{CLOCK}")


def start_of(line: str) -> str:
    """The name that the time goes into, also as one of several (`step, start = 0, time.time()`); empty: none."""
    found = _START.match(line)
    if found is not None:
        return found["name"]
    try:
        body = ast.parse(line.strip()).body if re.search(CLOCK, line) and "=" in line else []
    except (SyntaxError, ValueError):
        return ""
    taken = (ast.unparse(target) for target, value in _pairs(body) if re.fullmatch(CLOCK, ast.unparse(value)))
    return next(taken, "")


def _pairs(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each name with what it gets."""
    for node in body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from zip(target.elts, node.value.elts, strict=False)
                else:
                    yield target, node.value


_BY = r"/\s{0,8}(?:max\(\s{0,8})?"
_DIVIDED = re.compile(_BY + r"(\w+)\b(?!\s{0,8}(?:[*/]|>))")
_COUNTED = re.compile(
    r"tok|step|sample|row|example|seen|batch|iter|epoch|count|done|total|num|len\(|seq|(?<![a-z])(n|i|it|its)(?![a-z])",
    re.IGNORECASE,
)
_TIME = re.compile(r"(?<![a-z])(time|times|ms|secs?|seconds|elapsed|took|wait\w*|dur\w*)(?![a-z])", re.IGNORECASE)
_QUOTED = re.compile(r"(?<!\[)\"[^\"]*\"|(?<!\[)'[^']*'")


def speed_since(lines: list[str], begin: int, end: int, name: str) -> int:
    """The line that divides something by the time since then; 0 if there is none."""
    since = rf"\(?\s{{0,8}}{CLOCK}\s{{0,8}}-\s{{0,8}}{name}\s{{0,8}}\)?"  # bounded: blanks without end are quadratic
    divided = re.compile(rf"{_BY}{since}")
    taken = re.compile(rf"\s*(\w+)\s{{0,8}}=\s{{0,8}}{since}")
    named: set[str] = set()
    for number in range(begin, end + 1):
        text = lines[number - 1]
        if (found := divided.search(text)) and _counts(lines, number, found.start()):
            return number
        if found := taken.match(text):
            named.add(found[1])
        if re.search(r"/\s{0,8}(60|3600)\b", text):
            continue
        for found in _DIVIDED.finditer(text) if named else ():
            if found[1] in named and _counts(lines, number, found.start()):
                return number
    return 0


def _counts(lines: list[str], number: int, column: int) -> bool:
    """What is divided there counts something; a share of the time is no speed."""
    text = lines[number - 1][:column]
    if not text.strip() and number > 1:
        text = lines[number - 2]
    over = re.split(r"[,={:]", _QUOTED.sub("", text[-300:]))[-1]
    figures = re.fullmatch(r"[\s\d_.*)]*\d[\s\d_.*)]*", over.rpartition("(")[2]) and _A_SECOND.search(lines[number - 1])
    return bool(figures or _COUNTED.search(over)) and not _TIME.search(over)


_A_SECOND = re.compile(r"/ ?s(?:ec(?:ond)?)?\b|per[_ ]s(?:ec(?:ond)?)?\b|\w_s\b|throughput|speed", re.IGNORECASE)
