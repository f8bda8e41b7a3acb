"""What names of one file may stand for where they are used: assignments, parameters and returned values, unevaluated.

Work is counted and bounded, since a file may be made to take long: what asks more than that is not followed at all.
"""

import ast
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef

WORK = 300_000
"""Steps for a file; thousands are usual."""


class TooMuchError(Exception):
    """More work than a file is worth."""


@dataclass(slots=True, eq=False)
class Binding:
    statement: ast.stmt
    value: ast.expr
    since: tuple[int, int]
    """Where the name has it: behind the statement, or in a loop's body."""

    certain: bool
    """It replaces what the name was before. Not: a loop's variable, one more element of a container."""


@dataclass(frozen=True, slots=True)
class All:
    """Whatever a scope assigns to a name, wherever."""

    scope: ast.AST
    name: str


@dataclass(frozen=True, slots=True)
class Given:
    """What the file's own calls give a function for one of its parameters."""

    function: Function
    name: str


@dataclass(frozen=True, slots=True)
class Returned:
    function: Function


Step = ast.expr | Binding | All | Given | Returned


class Bindings:
    """All of one file."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.work = 0
        self.calls: list[ast.Call] = []
        """In the file's order."""

        self.attributes: list[ast.Attribute] = []
        """That are not called: methods among them may be called elsewhere."""

        self.definitions: dict[str, list[Definition]] = {}
        self._imported: set[str] = set()
        self._called: dict[str, list[ast.Call]] = {}
        self._above: dict[ast.AST, ast.AST] = {}
        self._block: dict[ast.AST, tuple[ast.AST, str]] = {}
        self._where: dict[ast.AST, tuple[ast.AST, ast.AST, ast.AST]] = {}
        self._bound: dict[tuple[ast.AST, str], list[Binding]] = {}
        self._returns: dict[ast.AST, list[ast.expr]] = {}
        self._instances: set[str] = set()
        self._walked()
        for (_, name), held in self._bound.items():
            held.sort(key=lambda one: one.since)
            if any(self._is_made_here(one.value) for one in held):
                self._instances.add(name)

    def charge(self, steps: int = 1) -> None:
        """Raises `TooMuchError`."""
        self.work += steps
        if self.work > WORK:
            raise TooMuchError

    def definition(self, node: ast.AST) -> ast.AST:
        """The function or class that it stands in, or the file."""
        return self._where[node][2]

    def next(self, step: Step) -> Iterator[Step]:
        """What may be behind it."""
        if isinstance(step, Binding):
            yield step.value
        elif isinstance(step, All):
            yield from self._bound.get((step.scope, step.name), ())
        elif isinstance(step, Given):
            yield from self._given(step.function, step.name)
        elif isinstance(step, Returned):
            yield from self._returns.get(step.function, ())
        elif isinstance(step, ast.Call):
            yield from (Returned(one) for one in self.functions(step))
        elif isinstance(step, ast.IfExp):
            yield from (step.body, step.orelse)
        elif isinstance(step, ast.BoolOp):
            yield from step.values
        elif isinstance(step, ast.NamedExpr | ast.Starred):
            yield step.value
        elif isinstance(step, ast.List | ast.Tuple | ast.Set):
            yield from step.elts
        elif isinstance(step, ast.Dict):
            yield from step.values
        elif isinstance(step, ast.Lambda):
            yield step.body
        elif isinstance(step, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            yield from (step.elt, *(one.iter for one in step.generators))
        elif isinstance(step, ast.DictComp):
            yield from (step.value, *(one.iter for one in step.generators))
        elif isinstance(step, ast.Name | ast.Attribute):
            yield from self._values(step)

    def functions(self, call: ast.Call) -> list[Function]:
        """The file's own that a call may run."""
        name, func = last(call.func), call.func
        root: ast.expr = func
        while isinstance(root, ast.Attribute | ast.Call):
            self.charge()
            root = root.value if isinstance(root, ast.Attribute) else root.func
        if isinstance(root, ast.Name) and root.id in self._imported:
            return []
        found: list[Function] = []
        for one in self.definitions.get(name, ()):
            self.charge()
            if isinstance(one, ast.ClassDef):
                made = [held for held in one.body if isinstance(held, FUNCTIONS) and held.name == "__init__"]
                found += made if isinstance(func, ast.Name) else []
            elif isinstance(func, ast.Attribute) == isinstance(self._above[one], ast.ClassDef):
                found.append(one)
        return found

    def takes(self, call: ast.Call, given: ast.expr) -> bool:
        """Whether an argument certainly goes to a parameter of the file's own functions, and nowhere else."""
        of = call.func.value if isinstance(call.func, ast.Attribute) else None
        own = of is None or dotted(of) in ("self", "cls", *self._instances) or self._is_made_here(of)
        own = own or (isinstance(of, ast.Name) and self._is_class(of.id))
        functions = self.functions(call) if own else []
        for function in functions:
            self.charge(len(call.args) + len(call.keywords))
            names = _bound_names(function, call)
            keyword = next((one.arg for one in call.keywords if one.value is given), None)
            before = call.args[: call.args.index(given) + 1] if given in call.args else []
            listed = bool(before) and not any(isinstance(one, ast.Starred) for one in before)
            if keyword not in names and not (listed and len(before) <= len(names)):
                return False
        return bool(functions)

    def _is_class(self, name: str) -> bool:
        return any(isinstance(one, ast.ClassDef) for one in self.definitions.get(name, ()))

    def _is_made_here(self, node: ast.expr) -> bool:
        """An object of one of the file's own classes."""
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and self._is_class(node.func.id)

    def _walked(self) -> None:
        stack: list[tuple[ast.AST, tuple[ast.AST, ast.AST, ast.AST]]] = [(self.tree, (self.tree,) * 3)]
        while stack:
            node, where = stack.pop()
            self._where[node] = where
            self._noted(node)
            function = node if isinstance(node, FUNCTIONS) else where[0]
            of_class = node if isinstance(node, ast.ClassDef) else where[1]
            inside = (function, of_class, node if isinstance(node, (*FUNCTIONS, ast.ClassDef)) else where[2])
            below: list[tuple[ast.AST, tuple[ast.AST, ast.AST, ast.AST]]] = []
            for name, value in ast.iter_fields(node):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        self._above[child] = node
                        if isinstance(child, ast.stmt):
                            self._block[child] = (node, name)
                        below.append((child, inside))
            stack += reversed(below)

    def _noted(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            self.calls.append(node)
            self._called.setdefault(last(node.func), []).append(node)
        elif isinstance(node, ast.Attribute):
            above = self._above[node]
            if not (isinstance(above, ast.Call) and above.func is node):
                self.attributes.append(node)
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            self.definitions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._imported |= {(one.asname or one.name).split(".")[0] for one in node.names}
        elif isinstance(node, ast.Return) and node.value is not None:
            self._returns.setdefault(self._where[node][0], []).append(node.value)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._bind(node.target, node, node.value)
        elif isinstance(node, ast.For):
            self._bind(node.target, node, node.iter)

    def _bind(self, target: ast.expr, statement: ast.stmt, value: ast.expr) -> None:
        certain = not isinstance(statement, ast.For)
        if isinstance(target, ast.Subscript):
            target, certain = target.value, False
        name = dotted(target)
        if name:
            end = value if isinstance(statement, ast.For) else statement
            since = (end.end_lineno or 0, end.end_col_offset or 0)
            scope = self._where[statement][isinstance(target, ast.Attribute)]
            self._bound.setdefault((scope, name), []).append(Binding(statement, value, since, certain))

    def _values(self, node: ast.Name | ast.Attribute) -> Iterator[Step]:
        """What may have been assigned to a name where it stands."""
        name = dotted(node)
        scope: ast.AST = self._where[node][isinstance(node, ast.Attribute)]
        found, certain = self._before(self._bound.get((scope, name), []), node) if name else ([], True)
        yield from found
        while not certain:
            self.charge()
            if isinstance(scope, FUNCTIONS) and name in _parameters(scope):
                yield Given(scope, name)
                return
            if found or scope is self.tree:
                return
            scope = self._where[scope][0]
            if (scope, name) in self._bound:
                yield All(scope, name)
                found = self._bound[scope, name]

    def _before(self, held: list[Binding], use: ast.expr) -> tuple[list[Binding], bool]:
        """From the last one before the use back to one that is certain, and whether there is such. Where none stands
        before: those behind it, which a loop brings, but never the one whose value the use is a part of."""
        if not held:
            return [], False
        at = (use.lineno, use.col_offset)
        blocks = self._blocks(use)
        found: list[Binding] = []
        count = bisect_right(held, at, key=lambda one: one.since)
        for number in range(count - 1, -1, -1):
            self.charge()
            found.append(held[number])
            if held[number].certain and self._block.get(held[number].statement) in blocks:
                return found, True
        if not found:
            self.charge(len(held))
            found = [one for one in held if not (one.value.lineno, one.value.col_offset) <= at < one.since]
        return found, False

    def _blocks(self, node: ast.AST) -> set[tuple[ast.AST, str]]:
        """The one that it stands in, and those around it."""
        found: set[tuple[ast.AST, str]] = set()
        inside: ast.AST | None = node
        while inside is not None:
            self.charge()
            if inside in self._block:
                found.add(self._block[inside])
            inside = self._above.get(inside)
        return found

    def _given(self, function: Function, name: str) -> Iterator[ast.expr]:
        of = self._above[function]
        calls = self._called.get(function.name, [])
        if function.name == "__init__" and isinstance(of, ast.ClassDef):
            calls = [*calls, *self._called.get(of.name, ())]
        for call in calls:
            self.charge()
            if function not in self.functions(call):
                continue
            names = _bound_names(function, call)
            by_name = next((one.value for one in call.keywords if one.arg == name), None)
            if by_name is not None:
                yield by_name
            elif name in names and names.index(name) < len(call.args):
                yield call.args[names.index(name)]


def _parameters(function: Function) -> list[str]:
    given = function.args
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def _bound_names(function: Function, call: ast.Call) -> list[str]:
    """Its parameters, without the object where the call gives that by itself."""
    names = _parameters(function)
    itself = isinstance(call.func, ast.Attribute) or function.name == "__init__"
    return names[1:] if itself and names[:1] in (["self"], ["cls"]) else names


def last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.expr) -> str:
    """`a.b.c`; empty for anything else, and for what is longer than names are."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < 8:
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
