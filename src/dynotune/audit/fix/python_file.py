"""A change of an argument, an entry of a dictionary or an assignment in Python; everything else stays to the character."""

import ast
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from dynotune.audit.change import Change, Edit
from dynotune.audit.fix.splice import NotAppliedError
from dynotune.audit.place import Place

Holder = cst.Arg | cst.DictElement | cst.Assign | cst.AnnAssign | cst.Call


def changed_python(text: str, change: Change) -> str:
    """Raises `NotAppliedError`."""
    try:
        module = cst.parse_module(text)
        wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        edit = _Edit(change)
        after = wrapper.visit(edit).code
    except (cst.ParserSyntaxError, RecursionError) as error:
        raise NotAppliedError(f"it cannot be parsed: {str(error).splitlines()[0]}") from None
    if not edit.done:
        raise NotAppliedError(f"`{change.name}` does not stand there as an argument, an entry or an assignment")
    try:
        ast.parse(after)
    except (SyntaxError, ValueError) as error:
        raise NotAppliedError(f"it would no longer parse: {error}") from None
    return after


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


class _Edit(cst.CSTTransformer):
    """Finds what has exactly the change's span; arguments and entries by their name too."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change, self.place = change, change.place
        self.done = False

    def _is_here(self, node: cst.CSTNode) -> bool:
        return _same(self.get_metadata(PositionProvider, node), self.place)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg | cst.RemovalSentinel:  # noqa: N802
        name = original_node.keyword
        if self.done or name is None or name.value != self.change.name or not self._is_here(original_node):
            return updated_node
        self.done = True
        match self.change.edit:
            case Edit.SET:
                return updated_node.with_changes(value=self._value(updated_node.value))
            case Edit.RENAME:
                return updated_node.with_changes(keyword=name.with_changes(value=self.change.to))
        return cst.RemoveFromParent()

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:  # noqa: N802
        gone = len(original_node.args) - len(updated_node.args)
        if gone == 1 and updated_node.args:
            removed_last = updated_node.args[-1].deep_equals(original_node.args[-2])
            if removed_last:  # what stood before the closing bracket stays there
                last, old = updated_node.args[-1], original_node.args[-1]
                kept = last.with_changes(comma=old.comma, whitespace_after_arg=old.whitespace_after_arg)
                return updated_node.with_changes(args=[*updated_node.args[:-1], kept])
        if self.done or self.change.edit is not Edit.SET or not self._is_here(original_node):
            return updated_node
        given = [arg for arg in original_node.args if arg.keyword is not None and arg.keyword.value == self.change.name]
        if given:
            raise NotAppliedError(f"`{self.change.name}` is given there already")
        self.done = True
        return _with(updated_node, self.change)

    def leave_DictElement(  # noqa: N802
        self, original_node: cst.DictElement, updated_node: cst.DictElement
    ) -> cst.DictElement | cst.RemovalSentinel:
        key = original_node.key
        named = isinstance(key, cst.SimpleString) and key.evaluated_value == self.change.name
        here = self._is_here(original_node) or self._is_here(original_node.value)
        if self.done or not named or not here:
            return updated_node
        self.done = True
        match self.change.edit:
            case Edit.SET:
                return updated_node.with_changes(value=self._value(updated_node.value))
            case Edit.RENAME:
                return updated_node.with_changes(key=literal(self.change.to))
        return cst.RemoveFromParent()

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:  # noqa: N802
        if self._assigned(original_node):
            return updated_node.with_changes(value=self._value(updated_node.value))
        return updated_node

    def leave_AnnAssign(self, original_node: cst.AnnAssign, updated_node: cst.AnnAssign) -> cst.AnnAssign:  # noqa: N802
        if original_node.value is not None and self._assigned(original_node):
            assert updated_node.value is not None
            return updated_node.with_changes(value=self._value(updated_node.value))
        return updated_node

    def _assigned(self, node: cst.Assign | cst.AnnAssign) -> bool:
        if self.done or self.change.edit is not Edit.SET:
            return False
        if not (self._is_here(node) or (node.value is not None and self._is_here(node.value))):
            return False
        if isinstance(node, cst.Assign) and len(node.targets) > 1:
            raise NotAppliedError("the value is given to several names")
        self.done = True
        return True

    def _value(self, old: cst.BaseExpression) -> cst.BaseExpression:
        new = literal(self.change.value)
        single = isinstance(old, cst.SimpleString) and old.quote == "'"
        if single and isinstance(new, cst.SimpleString) and new.quote == '"' and "'" not in new.value:
            return cst.SimpleString(f"'{new.value[1:-1]}'")
        return new


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
