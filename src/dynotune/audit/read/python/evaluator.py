"""Constant expressions, followed through names, functions and files. Nothing is executed and nothing imported.

Longer than most files: expressions, names and functions ask one another for their values, so that none stands alone.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.setting import Unknown
from dynotune.audit.read.python import declared, files
from dynotune.audit.read.python.class_names import ATTRIBUTES, names_of
from dynotune.audit.read.python.module import FUNCTIONS, Binding, Branch, Module, Scope
from dynotune.audit.read.python.modules import Modules
from dynotune.audit.read.python.objects import OF_LAUNCHERS, Objects
from dynotune.audit.read.python.operators import NoValueError, binary, compare, converted, unary
from dynotune.audit.read.python.rounds import EXTRA, IN_ALL, Round, Rounds
from dynotune.audit.read.python.value import HOLE, ClassOf, Made, Names, Value, left_out, plain, unknown

DEEPEST = 40
"""Steps from name to name; a longer trail is a generated file or a trap."""

MOST = 1_500
"""Expressions evaluated for one question."""

DEEPEST_CALLS = 4
"""Functions of the project that are followed into one another."""

_CIRCLE = "it depends on itself"
_TOO_LONG = "the trail to it is too long"

_DTYPES = frozenset({"bfloat16", "float16", "float32", "float64", "half", "float", "int8", "float8_e4m3fn"})
_CONVERTED = frozenset({"int", "float", "str", "bool", "len", "max", "min", "abs", "round"})

Frame = Mapping[str, Value]
"""Arguments of the function that is being followed, by parameter."""


class Evaluator:
    def __init__(self, module: Module, others: Modules, configs: Mapping[str, ConfigFile]) -> None:
        self.module = module
        self.others = others
        self.configs = configs
        self.objects = Objects(self)
        self.rounds = Rounds(self)
        self._depth = 0
        self._left = [MOST]
        self.rounds_left = [EXTRA, 0]
        """Expressions that rounds of this question may take still; whether one is being gone through."""

        self.rounds_in_all = [IN_ALL]
        """That rounds of all questions may take still."""

        self.missing = [False]
        """Whether a key was asked for that a class does not take."""

        self._open: set[tuple[int, int]] = set()
        self._known = others.known
        self._calls = 0
        self._cut = [False]
        """Whether something is unknown for want of budget or in a circle, and may come out otherwise from elsewhere."""

    def fresh(self) -> "Evaluator":
        """The same, with the whole budget."""
        self._depth, self._left, self._cut, self._known = 0, [MOST], [False], self.others.known
        self.rounds_left, self.missing = [max(min(EXTRA, self.rounds_in_all[0]), 0), 0], [False]
        return self

    @property
    def budget(self) -> list[int]:
        return self._left

    def takes(self, names: Names, key: str) -> bool | None:
        """Whether a class takes a key; None: that is not known."""
        if key in names.more or key in names.less:
            return key in names.more
        return self.others.takes(names.of, key)

    def value(self, node: ast.expr, scope: Scope, frame: Frame = {}) -> Value:  # noqa: B006 (read only)
        """Never raises. `scope` is of this module."""
        self._left[0] -= 1
        known = self._known.get(node) if not frame else None
        if known is not None:
            return known
        mark = (id(node), id(frame))
        if self._depth >= DEEPEST or self._left[0] <= 0:
            self._cut[0] = True
            return unknown(_TOO_LONG)
        if mark in self._open:
            self._cut[0] = True
            return unknown(_CIRCLE)
        self._depth += 1
        self._open.add(mark)
        before, self._cut[0] = self._cut[0], False
        try:
            found = self._value(node, scope, frame)
            if not frame and not self._cut[0]:
                self._known[node] = found
            return found
        except NoValueError as error:
            return unknown(str(error))
        finally:
            self._depth -= 1
            self._open.discard(mark)
            self._cut[0] = self._cut[0] or before

    def _value(self, node: ast.expr, scope: Scope, frame: Frame) -> Value:
        match node:
            case ast.Constant():
                if isinstance(node.value, (bytes, complex)) or node.value is ...:
                    return unknown("it is no plain value")
                return Value(node.value)
            case ast.Name():
                return self.name(node, scope, frame)
            case ast.Attribute():
                return self._attribute(node, scope, frame)
            case ast.Subscript():
                return self._subscript(node, scope, frame)
            case ast.Call():
                return self._call(node, scope, frame)
            case ast.JoinedStr():
                return self._joined(node, scope, frame)
            case ast.BinOp():
                return self._binary(node, scope, frame)
            case ast.UnaryOp():
                inner = self.value(node.operand, scope, frame)
                if not inner.is_known:
                    return inner
                if isinstance(inner.value, Made) and not isinstance(node.op, ast.Not):
                    raise NoValueError("its operand is no number")
                return Value(unary(node.op, inner.value), inner.via)
            case ast.BoolOp():
                return self._either(node, scope, frame)
            case ast.Compare():
                return self._compare(node, scope, frame)
            case ast.IfExp():
                return self._conditional(node, scope, frame)
            case ast.List() | ast.Tuple() | ast.Set():
                return self._sequence(node.elts, scope, frame)
            case ast.Dict():
                return self._dictionary(node, scope, frame)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self.rounds.comprehension(node, scope, frame)
            case ast.NamedExpr() | ast.Await():
                return self.value(node.value, scope, frame)
            case _:
                return unknown("it is computed when the script runs")

    # Names

    def name(self, node: ast.Name, scope: Scope, frame: Frame) -> Value:
        if isinstance(frame, Round):
            if node.id in frame.names:
                return frame[node.id]
            first_line, last_line = frame.span
            if not any(first_line <= one.at[0] <= last_line for one in scope.bindings.get(node.id, ())):
                return self.name(node, scope, frame.outer)
        if node.id in frame and isinstance(scope.node, (*FUNCTIONS, ast.Lambda)) and node.id not in scope.bindings:
            return frame[node.id]
        at = (node.lineno, node.col_offset)
        inner: Scope | None = scope
        first = True
        while inner is not None:
            if inner.is_class and not first:
                inner = inner.parent
                continue
            if node.id in inner.bindings:
                found = self._of_bindings(node.id, inner, at if first else None, frame if first else {})
                if found is not None:
                    return found.through(self.module.place(node)) if not found.via else found
            if isinstance(inner.node, FUNCTIONS):
                if first and node.id in frame:
                    return self._changed(node.id, frame[node.id], inner, at, frame)
                parameter = self.objects.parameter(node.id, inner, self.module)
                if parameter is not None:
                    return self._changed(node.id, parameter, inner, at, frame)
            inner = inner.parent
            first = False
        if node.id == "__file__":
            return Value(self.module.file)
        imported = self.module.imports.get(node.id)
        if imported:
            return self._imported(imported)
        return unknown(f"`{node.id}` is not given a value in this file")

    def _imported(self, dotted: str) -> Value:
        found = files.module_of(dotted, self.module, self.others)
        if found is not None:
            other, name = found
            if not name:
                return unknown("it is a module")
            return self.elsewhere(other).of_module(name)
        if dotted.startswith("torch.") and dotted.rpartition(".")[2] in _DTYPES:
            return Value(dotted.rpartition(".")[2])
        if self.others.takes(dotted, "") is not None:
            return Value(ClassOf(dotted))
        return unknown(f"it is `{dotted}`")

    def _imported_part(self, dotted: str) -> Value:
        """`config.LR` of an imported module, or an attribute of something imported."""
        whole, _, last = dotted.rpartition(".")
        found = self._imported(dotted)
        if found.is_known or files.module_of(whole, self.module, self.others) is None:
            return found
        owner = self._imported(whole)
        return self.objects.attribute(owner, last) if owner.is_known else found

    def elsewhere(self, module: Module) -> "Evaluator":
        """For another file, on what is left of this question's budget."""
        if module is self.module:
            return self
        other = Evaluator(module, self.others, self.configs)
        other._depth, other._left, other._open = self._depth + 1, self._left, self._open
        other._calls, other._cut = self._calls, self._cut
        other.rounds_left, other.missing = self.rounds_left, self.missing
        other.rounds_in_all = self.rounds_in_all
        return other

    def class_elsewhere(self, dotted: str) -> "tuple[Evaluator, Scope] | None":
        return self._definition_elsewhere(dotted, "class")

    def function_elsewhere(self, dotted: str) -> "tuple[Evaluator, Scope] | None":
        return self._definition_elsewhere(dotted, "function")

    def _definition_elsewhere(self, dotted: str, kind: str) -> "tuple[Evaluator, Scope] | None":
        found = files.module_of(dotted, self.module, self.others)
        if found is None or not found[1] or self._depth >= DEEPEST:
            return None
        other, name = found
        for binding in other.top.bindings.get(name, ()):
            if binding.kind == kind and binding.node is not None:
                return self.elsewhere(other), other.scopes[binding.node]
        if name in other.imports:
            return self.elsewhere(other)._definition_elsewhere(other.imports[name], kind)
        return None

    def returned(self, scope: Scope, frame: Frame) -> Value:
        """What a function gives, its parameters bound to `frame`."""
        if self._depth >= DEEPEST or self._calls >= DEEPEST_CALLS:
            self._cut[0] = True
            return unknown(_TOO_LONG)
        possible: list[Value] = []
        self._calls += 1
        for node, branches in scope.returns:
            verdict = self._applies(branches, {}, scope, frame)
            if verdict is False:
                continue
            possible.append(self.value(node.value, scope, frame) if node.value is not None else Value(None))
            if verdict is True:
                break  # what stands below it is not reached
        self._calls -= 1
        if not possible:
            return unknown("what it gives is known only when the script runs")
        return _merged(possible, False)

    def of_module(self, name: str) -> Value:
        """A module-level name, as it stands when the file has been read through."""
        if self._depth >= DEEPEST:
            self._cut[0] = True
            return unknown(_TOO_LONG)
        if name in self.module.top.bindings:
            found = self._of_bindings(name, self.module.top, None, {})
            if found is not None:
                return found
        if name in self.module.imports:
            return self._imported(self.module.imports[name])
        return unknown(f"`{name}` is not given a value in `{self.module.file}`")

    def _of_bindings(self, name: str, scope: Scope, before: tuple[int, int] | None, frame: Frame) -> Value | None:
        """The last value that holds for sure, others that it may have by branches; None: bound only later."""
        bindings = [binding for binding in scope.bindings[name] if before is None or binding.at < before]
        if not bindings:
            return None
        here = _branches_at(bindings, before)
        possible: list[Value] = []
        sure = False
        for binding in reversed(bindings):
            verdict = self._applies(binding.branches, here, scope, frame)
            if verdict is False:
                continue
            found = self._bound(name, binding, scope, frame)
            if (
                isinstance(found.value, Unknown)
                and found.value.why in (_CIRCLE, _TOO_LONG)
                and binding is not bindings[0]
            ):
                continue  # `model = trainer.model.unload()`: it was what the trainer got
            possible.append(found)
            if verdict is True:
                sure = True
                break
        if not possible:
            return None
        found = _merged(possible, sure)
        return self._changed(name, found, scope, before, frame)

    def _applies(self, branches: tuple[Branch, ...], here: dict[int, str], scope: Scope, frame: Frame) -> bool | None:
        """True: it ran before; False: it did not; None: perhaps."""
        verdict: bool | None = True
        for node, part in branches:
            standing = here.get(id(node))
            if standing == part or part == "rest":
                continue
            if standing is not None and part != "loop":
                return False
            if isinstance(node, ast.If):
                test = self.value(node.test, scope, frame)
                if test.is_known and not test.others:
                    if bool(test.value) == (part == "body"):
                        continue
                    return False
            if part == "loop":
                continue
            verdict = None
        return verdict

    def runs(self, branches: tuple[Branch, ...], scope: Scope) -> bool | None:
        """Whether what stands under these conditions runs; None: perhaps."""
        return self._applies(branches, {}, scope, {})

    def _bound(self, name: str, binding: Binding, scope: Scope, frame: Frame) -> Value:
        place = self.module.place(binding.node) if binding.node is not None else None
        if binding.kind == "augment":
            assert binding.value is not None
            assert binding.operator is not None
            before = self._of_bindings(name, scope, binding.at, frame) or frame.get(name)
            amount = self.value(binding.value, scope, frame)
            return self.arithmetic(binding.operator, before or unknown("it has no value before"), amount)
        if binding.kind == "loop":
            return unknown("it changes from one round of a loop to the next")
        if binding.kind in ("function", "class"):
            assert binding.node is not None
            held = declared.fields(self, self.module.scopes[binding.node]) if binding.kind == "class" else {}
            return Value(Made(name, {}, self.module.place(binding.node), held, open="its definition does not give it"))
        if binding.value is None:
            return unknown("it is given no value here")
        found = self.value(binding.value, scope, frame)
        for number in binding.path:
            found = _element(found, number)
        return found.through(place) if place is not None else found

    def _changed(self, name: str, found: Value, scope: Scope, before: tuple[int, int] | None, frame: Frame) -> Value:
        """With attributes and items that are set after it was made."""
        changes = scope.changes.get(name)
        if not changes or not isinstance(found.value, (dict, Made)):
            return found
        here = _branches_at(changes, before)
        return self.objects.changed(
            found, changes, before, scope, frame, lambda b: self._applies(b.branches, here, scope, frame)
        )

    # Operators

    def _binary(self, node: ast.BinOp, scope: Scope, frame: Frame) -> Value:
        return self.arithmetic(node.op, self.value(node.left, scope, frame), self.value(node.right, scope, frame))

    def arithmetic(self, kind: ast.operator, left: Value, right: Value) -> Value:
        for side in (left, right):
            if not side.is_known:
                return side
        via = tuple(dict.fromkeys((*left.via, *right.via)))
        if isinstance(kind, ast.Add) and isinstance(left.value, list) and isinstance(right.value, list):
            return Value([*left.value, *right.value][:1000], via)
        if isinstance(left.value, (Names, list)) and isinstance(right.value, (Names, list)):
            return self._of_sets(kind, left, right)
        if isinstance(kind, ast.BitOr) and isinstance(left.value, dict) and isinstance(right.value, dict):
            return Value({**left.value, **right.value}, via)
        if isinstance(kind, ast.Div) and isinstance(left.value, str) and isinstance(right.value, str):
            return Value(files.joined(left.value, right.value), via)
        try:
            result = binary(kind, left.value, right.value)
        except NoValueError as error:
            return unknown(str(error), *via)
        others: list[Any] = []
        for one, two in ((left, right), (right, left)):
            for other in one.others:
                sides = (other, two.value) if one is left else (two.value, other)
                try:
                    others.append(binary(kind, *sides))
                except NoValueError:
                    continue
        return Value(result, via, tuple(dict.fromkeys(others))[:8])

    def _of_sets(self, kind: ast.operator, left: Value, right: Value) -> Value:
        """`names | {"a"}`, `names - {"a"}`, `raw.keys() & names`."""
        via = tuple(dict.fromkeys((*left.via, *right.via)))
        if isinstance(left.value, Names) and isinstance(right.value, list):
            told = frozenset(one.value for one in right.value if isinstance(one, Value) and isinstance(one.value, str))
            names = left.value
            if isinstance(kind, ast.BitOr):
                return Value(Names(names.of, names.more | told, names.less - told), via)
            if isinstance(kind, ast.Sub):
                return Value(Names(names.of, names.more - told, names.less | told), via)
            if isinstance(kind, ast.BitAnd):
                return self._of_sets(kind, right, left)
        elif isinstance(left.value, list) and isinstance(kind, (ast.BitAnd, ast.Sub)):
            kept: list[Value] = []
            for one in left.value:
                inside = self.inside(one.value, right.value) if isinstance(one, Value) else None
                if inside is None:
                    return unknown("a part of it is known only when the script runs")
                if inside == isinstance(kind, ast.BitAnd):
                    kept.append(one)
            return Value(kept, via)
        elif isinstance(left.value, list) and isinstance(right.value, list) and isinstance(kind, ast.BitOr):
            return Value([*left.value, *right.value][:1000], via)
        elif isinstance(left.value, list) and isinstance(kind, ast.BitOr):
            return self._of_sets(kind, right, left)
        return unknown("it is computed when the script runs")

    def inside(self, key: Any, held: Any) -> bool | None:
        """Whether a key is in a collection, as far as both are known."""
        if isinstance(held, Names):
            inside = self.takes(held, key) if isinstance(key, str) else False
            self.missing[0] = self.missing[0] or inside is False
            return inside
        if isinstance(held, dict):
            return True if key in held and not left_out(key) else None if HOLE in held else False
        every = [one.value if isinstance(one, Value) else one for one in held]
        if any(isinstance(one, (Unknown, Made)) for one in every) and key not in every:
            return None
        return key in every

    def _joined(self, node: ast.JoinedStr, scope: Scope, frame: Frame) -> Value:
        parts: list[str] = []
        via: tuple[Any, ...] = ()
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                found = self.value(part.value, scope, frame)
                if not found.is_known or isinstance(found.value, Made) or part.format_spec is not None:
                    return unknown("a part of it is known only when the script runs")
                parts.append(str(found.value))
                via = (*via, *found.via)
            else:
                assert isinstance(part, ast.Constant)
                parts.append(str(part.value))
        text = "".join(parts)
        if len(text) > 10_000:
            return unknown("it is too long")
        return Value(text, via)

    def _either(self, node: ast.BoolOp, scope: Scope, frame: Frame) -> Value:
        stops_at = isinstance(node.op, ast.Or)
        found = Value(None)
        for operand in node.values:
            found = self.value(operand, scope, frame)
            if not found.is_known:
                return found
            if bool(found.value) == stops_at:
                return found
        return found

    def _compare(self, node: ast.Compare, scope: Scope, frame: Frame) -> Value:
        left = self.value(node.left, scope, frame)
        via = left.via
        for kind, operand in zip(node.ops, node.comparators, strict=True):
            right = self.value(operand, scope, frame)
            for side in (left, right):
                if not side.is_known:
                    return side
                if isinstance(side.value, Made) or side.others:
                    return unknown("it is decided when the script runs")
            via = (*via, *right.via)
            wanted = right.value
            if isinstance(kind, (ast.In, ast.NotIn)) and isinstance(wanted, (Names, dict, list)):
                inside = self.inside(left.value, wanted) if isinstance(left.value, (str, int, float)) else None
                if inside is None:
                    return unknown("it is decided when the script runs")
                if inside is isinstance(kind, ast.NotIn):
                    return Value(False, via)
                left = right
                continue
            if isinstance(wanted, (Names, ClassOf)) or isinstance(left.value, (Names, ClassOf)):
                return unknown("it is decided when the script runs")
            if isinstance(wanted, list):
                wanted = [item.value if isinstance(item, Value) else item for item in wanted]
            if not compare(kind, left.value, wanted):
                return Value(False, via)
            left = right
        return Value(True, via)

    def _conditional(self, node: ast.IfExp, scope: Scope, frame: Frame) -> Value:
        test = self.value(node.test, scope, frame)
        one, two = self.value(node.body, scope, frame), self.value(node.orelse, scope, frame)
        if test.is_known and not test.others and not isinstance(test.value, Made):
            chosen = (one if test.value else two).through(self.module.place(node))
            flags = tuple(place for place in test.via if place.key.startswith("-") and place not in chosen.via)
            return replace(chosen, via=(*chosen.via, *flags))
        if one.is_known is not two.is_known:
            known = one if one.is_known else two
            why = "it depends on a condition"
            return unknown(why, *known.via, others=() if isinstance(known.value, Made) else (known.value,))
        return _merged([one, two], False)

    # Collections

    def _sequence(self, elements: list[ast.expr], scope: Scope, frame: Frame) -> Value:
        found: list[Value] = []
        for element in elements[:1000]:
            if isinstance(element, ast.Starred):
                inner = self.value(element.value, scope, frame)
                if not isinstance(inner.value, list):
                    return unknown("a part of it is known only when the script runs")
                found.extend(inner.value)
            else:
                found.append(self.value(element, scope, frame))
        return Value(found)

    def _dictionary(self, node: ast.Dict, scope: Scope, frame: Frame) -> Value:
        found: dict[Any, Value] = {}
        for key, item in zip(node.keys[:2000], node.values[:2000], strict=True):
            if key is None:
                inner = self.value(item, scope, frame)
                if not isinstance(inner.value, dict):
                    why = "a part of it is known only when the script runs"
                    held = (
                        (key, one.value) for key, one in found.items() if not isinstance(one.value, (Unknown, Made))
                    )
                    found.update({key: unknown(why, *inner.via, others=(one,)) for key, one in held})
                    found["**"] = unknown(why, *inner.via)
                    continue
                found.update(inner.value)
                continue
            named = self.value(key, scope, frame)
            if isinstance(named.value, (str, int, float, bool)) or named.value is None:
                value = self.value(item, scope, frame)
                span = self.module.place(item, str(named.value))
                found[named.value] = Value(value.value, value.via, value.others, value.place or span)
        return Value(found)

    def _subscript(self, node: ast.Subscript, scope: Scope, frame: Frame) -> Value:
        of = self.module.dotted(node.value)
        if of == "sys.argv" and isinstance(node.slice, ast.Constant):
            named = self.others.started_with.get(self.module.file, {}).get(str(node.slice.value))
            return named or unknown(declared.COMMAND_LINE)
        if of == "os.environ":
            key = self.value(node.slice, scope, frame)
            named = declared.started(self).get(f"${key.value}")
            if named is not None and named.is_known:
                return named.through(self.module.place(node, f"${key.value}"))
            exported = self.objects.exported(key.value) if key.value not in OF_LAUNCHERS else None
            return exported or unknown(f"it comes from the environment variable `{key.value}`")
        owner = self.value(node.value, scope, frame)
        if not owner.is_known:
            return owner
        key = (
            self.value(node.slice, scope, frame) if not isinstance(node.slice, ast.Slice) else unknown("it is a slice")
        )
        return self.objects.item(owner, key)

    def _attribute(self, node: ast.Attribute, scope: Scope, frame: Frame) -> Value:
        dotted = self.module.dotted(node)
        if node.attr in ATTRIBUTES:
            names = names_of(self, node.value, scope, frame)
            if names is not None:
                return names
        if dotted == declared.ABSL:
            return Value(Made("argparse.Namespace", {}, self.module.place(node), declared.absl_flags(self)))
        if dotted == f"{declared.ABSL}.{node.attr}":
            return declared.absl_flags(self).get(node.attr, unknown(declared.COMMAND_LINE))
        if dotted:
            return self._imported_part(dotted)
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            return self.objects.of_self(node.attr, scope)
        owner = self.value(node.value, scope, frame)
        if not owner.is_known:
            return owner
        return self.objects.attribute(owner, node.attr)

    # Calls

    def _call(self, node: ast.Call, scope: Scope, frame: Frame) -> Value:
        func = node.func
        dotted = self.module.dotted(func)
        if ast.unparse(node) == "len(sys.argv)" if isinstance(func, ast.Name) and func.id == "len" else False:
            given = self.others.started_with.get(self.module.file, {}).get("1")
            return Value(2, given.via) if given is not None else unknown(declared.COMMAND_LINE)
        if (
            isinstance(func, ast.Name)
            and not dotted
            and func.id in _CONVERTED
            and not self.module.bound(func.id, scope)
        ):
            return self._converted(func.id, node, scope, frame)
        return self.objects.call(node, dotted, scope, frame)

    def _converted(self, name: str, node: ast.Call, scope: Scope, frame: Frame) -> Value:
        values = [self.value(argument, scope, frame) for argument in node.args]
        if node.keywords:
            return unknown("it is computed when the script runs")
        for value in values:
            if not value.is_known:
                return value
            if isinstance(value.value, Made) or (isinstance(value.value, (dict, list)) and name != "len"):
                return unknown("it is computed when the script runs")
        others: tuple[Any, ...] = ()
        if len(values) == 1:
            for other in values[0].others:
                try:
                    others = (*others, converted(name, [other]))
                except NoValueError:
                    continue
        return Value(
            converted(name, [value.value for value in values]), sum((value.via for value in values), ()), others
        )


def _merged(possible: list[Value], sure: bool) -> Value:
    """One value and the others it may have. What holds for sure comes first; with none, and with several, none is known."""
    ordered = [possible[-1], *possible[:-1]] if sure else list(possible)
    first = ordered[0]
    if len(ordered) == 1:
        return first if sure or not first.is_known else Value(first.value, first.via, first.others, first.place)
    others: list[Any] = [*first.others]
    for value in ordered[1:]:
        for other in (value.value, *value.others):
            if not isinstance(other, Unknown) and other not in others:
                others.append(other)
    different = [other for other in others if plain(other) != plain(first.value)]
    if not different or isinstance(first.value, Made):
        return first
    if sure:
        return Value(first.value, first.via, tuple(different[:8]), first.place)
    every = [first.value, *different] if first.is_known else different
    return Value(Unknown("it depends on a condition"), first.via, tuple(every[:8]), first.place)


def _element(value: Value, number: int) -> Value:
    if isinstance(value.value, list) and -len(value.value) <= number < len(value.value):
        inner = value.value[number]
        return inner if isinstance(inner, Value) else Value(inner, value.via)
    if isinstance(value.value, Made) and value.value.element is None:
        made = value.value
        several = made.attributes.get(str(number))
        if several is not None:
            return several
        return Value(Made(made.name, made.arguments, made.place, made.attributes, number, made.open), value.via)
    return value if not value.is_known else unknown("it is a part of something computed when the script runs")


def _branches_at(bindings: Sequence[Binding], before: tuple[int, int] | None) -> dict[int, str]:
    """Which branches of these bindings the place of use stands in as well, and in which part of them."""
    if before is None:
        return {}
    nodes = {id(node): node for binding in bindings for node, _ in binding.branches}
    standing = ((mark, _part_at(node, before)) for mark, node in nodes.items())
    return {mark: part for mark, part in standing if part}


def _part_at(node: ast.AST, at: tuple[int, int]) -> str:
    """Which part of a statement a place stands in; empty: none."""
    if not getattr(node, "lineno", 0) <= at[0] <= (getattr(node, "end_lineno", None) or at[0]):
        return ""  # most of them, in a long file
    for part, field in (("body", "body"), ("else", "orelse"), ("except", "handlers")):
        for statement in getattr(node, field, None) or ():
            start = (statement.lineno, statement.col_offset)
            end = (statement.end_lineno or 0, statement.end_col_offset or 0)
            if start <= at <= end:
                if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
                    return "loop" if part == "body" else ""
                return part
    return ""
