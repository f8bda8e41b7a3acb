"""From the text of a file to a syntax tree: scripts and notebooks, of any age and in any state."""

import ast
import codecs
import io
import json
import re
import tokenize
import warnings
from dataclasses import dataclass

from dynotune.audit.cells import MARK

LONGEST = 2_000_000
"""Characters. A file above this is data or generated; reading it would take seconds."""

DEEPEST = 150
"""Levels of indentation or brackets. Nobody writes this; below it nothing that walks the tree can run out of stack."""

BIGGEST_TREE = 250
"""Levels of the syntax tree, which chains of operators and calls also deepen."""

_PYTHON_2 = re.compile(
    r"^\s*(print\s+[\"'\w]|exec\s+[\"'\w]|except\s+[\w.]+\s*,\s*\w+\s*:|raise\s+\w+\s*,)", re.MULTILINE
)
_MAGIC = re.compile(r"^\s*[%!?]|^\s*[\w.]+\?{1,2}\s*$")
_MAGIC_VALUE = re.compile(r"^(\s*)([\w, ]+?)\s*=\s*[%!]")
_FILE_CELL = re.compile(r"# ?%%(?:writefile|file)\b")
_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


@dataclass(frozen=True, slots=True)
class Parsed:
    text: str
    """What the tree's spans are of. Of a notebook: its code cells, each under a comment with its number."""

    tree: ast.Module
    why: str = ""
    """Why there is no tree (it is empty then), as a sentence."""


def decoded(data: bytes) -> str | None:
    """Text of a source file by its mark or its coding line (PEP 263), UTF-8 else; None: it is no text."""
    if b"\0" in data[:8192] and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return None
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    encoding = "utf-8-sig"
    for line in data.split(b"\n", 2)[:2]:
        said = _CODING.match(line)
        if said:
            encoding = said[1].decode("ascii", errors="replace")
            break
    try:
        codec = codecs.lookup(encoding)
        if not getattr(codec, "_is_text_encoding", True):
            return data.decode("utf-8-sig", errors="replace")
        return codec.decode(data, "replace")[0].removeprefix("\ufeff")
    except (LookupError, UnicodeError):
        return data.decode("utf-8-sig", errors="replace")


def parsed(text: str, *, notebook: bool = False) -> Parsed:
    """Never raises for any text."""
    if len(text) > LONGEST:
        return _nothing(text, f"It has {len(text):,} characters; scripts above {LONGEST:,} are not read.")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\f", " ")
    if notebook:
        cells = _cells(text)
        if cells is None:
            return _nothing(text, "It is no notebook that can be read: no list of `cells` in JSON.")
        text = cells
    if "\0" in text:
        return _nothing(text, "It has null bytes, so it is no source text.")
    deep = _depth(text)
    if deep > DEEPEST:
        return _nothing(text, f"It is nested {deep} levels deep; no more than {DEEPEST} are followed.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes and comparisons of the audited code
            tree = ast.parse(text)
    except SyntaxError as error:
        kind = "It looks like Python 2" if _PYTHON_2.search(text) else "It does not parse"
        return _nothing(text, f"{kind}: line {error.lineno or 0}: {error.msg}.")
    except (RecursionError, MemoryError):
        return _nothing(text, "Its expressions are nested too deeply to parse.")
    except (ValueError, OverflowError) as error:
        return _nothing(text, f"It does not parse: {error}.")
    deep = _height(tree)
    if deep > BIGGEST_TREE:
        return _nothing(
            text, f"Its expressions are nested {deep} levels deep; no more than {BIGGEST_TREE} are followed."
        )
    return Parsed(text, tree)


def comments(text: str) -> dict[int, str]:
    """By line, without the mark; those before the place where tokens end in an error."""
    found: dict[int, str] = {}
    if "#" not in text:
        return found
    files = _of_files(text) if "%%" in text else frozenset()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and token.start[0] not in files:
                found[token.start[0]] = token.string.lstrip("#").strip()
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        pass  # what was seen up to there stays; that the file does not parse is said by `parsed`
    return found


def _of_files(text: str) -> frozenset[int]:
    """Lines of a notebook's cells that are files, and nothing that its author says of its code."""
    found: set[int] = set()
    inside = False
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if line.startswith(MARK):
            inside = number < len(lines) and _FILE_CELL.match(lines[number]) is not None
        elif inside:
            found.add(number)
    return frozenset(found)


def _nothing(text: str, why: str) -> Parsed:
    return Parsed(text, ast.Module(body=[], type_ignores=[]), why)


def _depth(text: str) -> int:
    """An upper bound for indentation and brackets, counted without regard to strings, which may only raise it where a
    file is full of brackets in strings; those are looked at again."""
    depth = deepest = 0
    for character in text:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth = max(0, depth - 1)
    indents = 0
    for line in text.split("\n"):
        indents = max(indents, len(line) - len(line.lstrip(" \t"))) if line.strip() else indents
    if deepest > DEEPEST:
        deepest = _depth_by_tokens(text)
    return max(deepest, _levels(text) if indents > DEEPEST else 0)


def _depth_by_tokens(text: str) -> int:
    depth = deepest = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.OP and token.string in "([{":
                depth += 1
                deepest = max(deepest, depth)
            elif token.type == tokenize.OP and token.string in ")]}":
                depth = max(0, depth - 1)
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        pass  # brackets that never close end in this; how deep they were is known
    return deepest


def _levels(text: str) -> int:
    """Of indentation: distinct ones that are open at once."""
    stack = [0]
    deepest = 0
    for line in text.split("\n"):
        if not line.strip():
            continue
        width = len(line) - len(line.lstrip(" \t"))
        while stack and stack[-1] > width:
            stack.pop()
        if not stack or stack[-1] < width:
            stack.append(width)
        deepest = max(deepest, len(stack))
    return deepest


def _height(tree: ast.AST) -> int:
    """Of the tree, without recursion."""
    height = 0
    level: list[ast.AST] = [tree]
    while level:
        height += 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return height


def notes(text: str) -> str:
    """The text cells of a notebook, one after the other; empty where there are none or it cannot be read."""
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    written = []
    for cell in cells if isinstance(cells, list) else ():
        if isinstance(cell, dict) and cell.get("cell_type") == "markdown":
            source = cell.get("source", "")
            parts = source if isinstance(source, list) else [source]
            written.append("".join(part for part in parts if isinstance(part, str)))
    return "\n\n".join(written)


def _cells(text: str) -> str | None:
    """Code cells as one script. Lines for the shell and IPython become comments, so that line numbers stay within cells."""
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        return None
    lines: list[str] = []
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", "")
        source = "".join(part for part in source if isinstance(part, str)) if isinstance(source, list) else source
        if not isinstance(source, str):
            continue
        lines.append(f"{MARK}{number}")
        whole = source.lstrip().startswith("%%")
        for line in source.replace("\r\n", "\n").replace("\r", "\n").replace("\f", " ").split("\n"):
            named = _MAGIC_VALUE.match(line)
            if whole or _MAGIC.match(line):
                indent = line[: len(line) - len(line.lstrip())]
                lines.append(f"{indent}pass  # {line.strip()}" if indent and not whole else f"# {line}")
            elif named:
                lines.append(f"{named[1]}{named[2]} = None  # {line.strip()}")
            else:
                lines.append(line)
    return "\n".join(lines) + "\n"
