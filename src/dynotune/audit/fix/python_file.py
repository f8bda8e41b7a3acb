"""A change of an argument, an entry of a dictionary or an assignment in Python; everything else stays to the character.

Only a literal is replaced or taken out: a name, a call or a condition says that somebody decides it elsewhere.
"""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from dynotune.audit.change import Change, Edit
from dynotune.audit.fix.splice import NotAppliedError, Splice, spliced
from dynotune.audit.lines import lines_of
from dynotune.audit.place import Place

Span = tuple[int, int]
"""The first character and the one behind the last."""


def changed_python(text: str, change: Change) -> str:
    """Raises `NotAppliedError`."""
    try:
        source = _Source(text)
        entry = next(source.entries(change), None)
        after = _added(text, change) if entry is None else spliced(text, [_splice(source, entry, change)])
        ast.parse(after)
    except (SyntaxError, ValueError, RecursionError) as error:
        if isinstance(error, NotAppliedError):
            raise
        raise NotAppliedError(f"it cannot be parsed: {lines_of(str(error))[0]}") from None
    if entry is None and _comments(after) != _comments(text):
        raise NotAppliedError("a comment would not stay as it is")
    return after


@dataclass(frozen=True, slots=True)
class _Entry:
    """An argument, an entry of a dictionary, an assignment."""

    span: Span
    name: Span
    value: ast.expr
    others: tuple[Span, ...] = ()
    """Arguments or entries beside it, in their order; empty for an assignment, which is not taken out."""


class _Source:
    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = lines_of(text, keepends=True)
        self.starts = [0, *accumulate(map(len, self.lines))]
        self.tree = ast.parse(text)

    def at(self, line: int, byte: int) -> int:
        """The offset of what the parser calls a line (from 1) and a column (of UTF-8)."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:byte].decode(errors="replace"))

    def span(self, node: ast.expr | ast.keyword | ast.stmt) -> Span:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def is_here(self, span: Span, place: Place) -> bool:
        if not 0 < place.line <= len(self.lines) or self.starts[place.line - 1] + place.column - 1 != span[0]:
            return False
        if not place.end_line:
            return True
        return place.end_line <= len(self.lines) and self.starts[place.end_line - 1] + place.end_column - 1 == span[1]

    def entries(self, change: Change) -> Iterator[_Entry]:
        """What has exactly the change's span; arguments and entries by their name too."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Call():
                    yield from self._arguments(node, change)
                case ast.Dict():
                    yield from self._items(node, change)
                case ast.Assign() | ast.AnnAssign() if change.edit is Edit.SET and node.value is not None:
                    span, value = self.span(node), self.span(node.value)
                    here = self.is_here(span, change.place) or self.is_here(value, change.place)
                    if here and not isinstance(node.value, ast.Call):
                        if isinstance(node, ast.Assign) and len(node.targets) > 1:
                            raise NotAppliedError("the value is given to several names")
                        yield _Entry(span, span, node.value)

    def _arguments(self, call: ast.Call, change: Change) -> Iterator[_Entry]:
        for keyword in call.keywords:
            span = self.span(keyword)
            if keyword.arg == change.name and self.is_here(span, change.place):
                others = sorted([*map(self.span, call.args), *map(self.span, call.keywords)])
                yield _Entry(span, (span[0], span[0] + len(change.name)), keyword.value, tuple(others))

    def _items(self, given: ast.Dict, change: Change) -> Iterator[_Entry]:
        spans = [
            (self.span(key if key is not None else value)[0], self.span(value)[1])
            for key, value in zip(given.keys, given.values, strict=True)
        ]
        for key, value, span in zip(given.keys, given.values, spans, strict=True):
            if not isinstance(key, ast.Constant) or key.value != change.name:
                continue
            if self.is_here(span, change.place) or self.is_here(self.span(value), change.place):
                yield _Entry(span, self.span(key), value, tuple(spans))


def _splice(source: _Source, entry: _Entry, change: Change) -> Splice:
    if change.edit is Edit.RENAME:
        start, end = entry.name
        is_argument = source.text[start:end] == change.name
        return Splice(start, end, change.to if is_argument else _written(change.to, source.text[start:end]))
    start, end = source.span(entry.value)
    old = source.text[start:end]
    try:
        ast.literal_eval(entry.value)
    except (ValueError, TypeError, SyntaxError):
        raise NotAppliedError(
            f"`{change.name}` is no plain value there (`{' '.join(old.split())[:60]}`): change it where it is decided"
        ) from None
    if _comments(f"({old}\n)"):
        raise NotAppliedError("a comment stands within its value")
    if change.edit is Edit.SET:
        return Splice(start, end, _written(change.value, old))
    return _removed(source, entry)


def _removed(source: _Source, entry: _Entry) -> Splice:
    """With its comma; with its line and the comment on it where it stands there alone."""
    text, (start, end) = source.text, entry.span
    if not entry.others:
        raise NotAppliedError("it is neither an argument nor an entry")
    number = entry.others.index(entry.span)
    before = entry.others[number - 1][1] if number else None
    after = entry.others[number + 1][0] if number + 1 < len(entry.others) else None
    first = max(offset for offset in source.starts if offset <= start)
    last = min(offset for offset in source.starts if offset >= end)
    rest = text[end:last].strip().removeprefix(",").lstrip()
    if not text[first:start].strip() and (not rest or rest.startswith("#")):
        return Splice(first, last, "")
    if after is not None:
        gone = Splice(start, after, "")
    elif before is not None:
        gone = Splice(before, end, "")
    else:
        comma = text[end:].lstrip().startswith(",")
        gone = Splice(start, text.index(",", end) + 1 if comma else end, "")
    if "#" in text[gone.start : start] or "#" in text[end : gone.end]:
        raise NotAppliedError("a comment stands beside it")
    return gone


def _comments(text: str) -> list[str]:
    try:
        found = tokenize.generate_tokens(io.StringIO(text, newline="").readline)
        return [token.string for token in found if token.type == tokenize.COMMENT]
    except (tokenize.TokenError, SyntaxError) as error:
        raise NotAppliedError(f"it cannot be parsed: {error}") from None


def _written(value: Any, old: str) -> str:
    """In the quotes of what stood there."""
    new = literal(value)
    if isinstance(new, cst.SimpleString) and new.quote == '"' and old.startswith("'") and "'" not in new.value[1:-1]:
        return f"'{new.value[1:-1]}'"
    return cst.Module([]).code_for_node(new)


def literal(value: Any) -> cst.BaseExpression:
    """A value as Python writes it. Raises `NotAppliedError` for one that has no literal."""
    try:
        written = repr(value)
        if ast.literal_eval(written) != value:
            raise ValueError
        if isinstance(value, str) and "'" in written[:1] and '"' not in value and "\\" not in written:
            written = f'"{value}"'
        return cst.parse_expression(written)
    except (ValueError, SyntaxError, cst.ParserSyntaxError):
        raise NotAppliedError("its value has no literal in Python") from None


class _Add(cst.CSTTransformer):
    """One more argument for the call that has exactly the change's span."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change = change
        self.done = False

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:  # noqa: N802
        if self.done or not _same(self.get_metadata(PositionProvider, original_node), self.change.place):
            return updated_node
        given = [arg for arg in original_node.args if arg.keyword is not None and arg.keyword.value == self.change.name]
        if given:
            raise NotAppliedError(f"`{self.change.name}` is given there already")
        self.done = True
        return _with(updated_node, self.change)


def _added(text: str, change: Change) -> str:
    add = _Add(change)
    if change.edit is Edit.SET:
        try:
            after = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True).visit(add).code
        except cst.ParserSyntaxError as error:
            raise NotAppliedError(f"it cannot be parsed: {lines_of(str(error))[0]}") from None
    if not add.done:
        raise NotAppliedError(f"`{change.name}` does not stand there as an argument, an entry or an assignment")
    return after


def _same(span: Any, place: Place) -> bool:
    """Lines and columns of a place count from 1, columns of a span from 0."""
    start = (span.start.line, span.start.column + 1) == (place.line, place.column)
    return start and (not place.end_line or (span.end.line, span.end.column + 1) == (place.end_line, place.end_column))


def _with(call: cst.Call, change: Change) -> cst.Call:
    """The call with one more keyword argument at its end, in the layout of those that are there."""
    new = cst.Arg(
        keyword=cst.Name(change.name),
        value=literal(change.value),
        equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )
    if not call.args:
        return call.with_changes(args=[new])
    last = call.args[-1]
    between = _between(call)
    if isinstance(last.comma, cst.Comma):
        closing = last.comma.whitespace_after
        first, rest = _parted(between, closing)
        new = new.with_changes(comma=last.comma.with_changes(whitespace_after=rest))
        last = last.with_changes(comma=last.comma.with_changes(whitespace_after=first))
    else:
        first, rest = _parted(between, last.whitespace_after_arg)
        new = new.with_changes(whitespace_after_arg=rest)
        last = last.with_changes(comma=cst.Comma(whitespace_after=first), whitespace_after_arg=cst.SimpleWhitespace(""))
    return call.with_changes(args=[*call.args[:-1], last, new])


def _between(call: cst.Call) -> cst.BaseParenthesizableWhitespace:
    """What stands between two arguments."""
    if len(call.args) > 1 and isinstance(call.args[-2].comma, cst.Comma):
        return call.args[-2].comma.whitespace_after
    if isinstance(call.whitespace_before_args, cst.ParenthesizedWhitespace):
        return call.whitespace_before_args
    return cst.SimpleWhitespace(" ")


def _parted(
    between: cst.BaseParenthesizableWhitespace, closing: cst.BaseParenthesizableWhitespace
) -> tuple[cst.BaseParenthesizableWhitespace, cst.BaseParenthesizableWhitespace]:
    """What stands before the new argument, and after it: a comment beside the last argument stays with that."""
    if isinstance(between, cst.ParenthesizedWhitespace):
        between = between.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[])
    if not isinstance(closing, cst.ParenthesizedWhitespace):
        return between, closing
    if not isinstance(between, cst.ParenthesizedWhitespace):
        between = closing.with_changes(empty_lines=[])
    first = between.with_changes(first_line=closing.first_line)
    return first, closing.with_changes(first_line=cst.TrailingWhitespace(newline=closing.first_line.newline))
