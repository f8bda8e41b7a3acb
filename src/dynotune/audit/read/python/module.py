"""The names of one Python file: what is bound where, under which conditions, and what calls stand in what.

Longer than most files: one walk over statements keeps scopes, branches, loops and calls together, which none of them can
be told without.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dynotune.audit.facts.script import Around
from dynotune.audit.place import Place
from dynotune.audit.read.python.parsers import Parsers, parsers_of

Branch = tuple[ast.AST, str]
"""A statement that may not run, or not once, and which part of it: `body`, `else`, `except`, `loop`."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True, eq=False)
class Binding:
    """A place where a name, an attribute of one (`args.lr`) or an item of one (`cfg["lr"]`) gets a value."""

    kind: str
    """`value`, `augment`, `loop`, `with`, `function`, `class`, `unknown`; of what a name holds:
    `attribute`, `item`, `default` (an item where there is none yet), `gone`, `update`, `nested`."""

    at: tuple[int, int]
    """From where on it holds."""

    branches: tuple[Branch, ...]
    value: ast.expr | None = None
    path: tuple[int, ...] = ()
    """Which element of the value, where a tuple is unpacked."""

    operator: ast.operator | None = None
    node: ast.AST | None = None
    key: ast.expr | str | None = None
    annotated: bool = False
    scope: "Scope | None" = None
    """Whose code it is, where that is another's than the one that it is kept with."""


@dataclass(slots=True, eq=False)
class Scope:
    node: ast.AST
    parent: "Scope | None"
    branches: tuple[Branch, ...] = ()
    """Of the function or class itself, within its parent."""

    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    changes: dict[str, list[Binding]] = field(default_factory=dict)
    """Attributes and items of what a name holds, by the name."""

    returns: list[tuple[ast.Return, tuple[Branch, ...]]] = field(default_factory=list)

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)


@dataclass(slots=True, eq=False)
class Site:
    """A call and what it stands in."""

    node: ast.Call
    scope: Scope
    branches: tuple[Branch, ...]
    around: tuple[Around, ...]
    loops: tuple[ast.AST, ...]
    """Around it, in the same function, outermost first."""

    result: str


class Module:
    def __init__(self, file: str, text: str, tree: ast.Module) -> None:
        self.file = file
        self.tree = tree
        self.lines = text.split("\n")
        self.imports: dict[str, str] = {}
        self.scopes: dict[ast.AST, Scope] = {}
        self.sites: list[Site] = []
        self.started: dict[str, list[Site]] = {}
        """Calls that others make of the file's functions in processes of their own (`mp.spawn(work, args=(n, cfg))`), as if
        they stood there; by the function's name."""

        self.top = Scope(tree, None)
        self.scopes[tree] = self.top
        _Walk(self).body(tree.body, self.top, (), (), ())
        self.site_of = {site.node: site for site in self.sites}

    @cached_property
    def parsers(self) -> Parsers:
        return parsers_of(self.tree)

    @cached_property
    def calls_by_name(self) -> dict[str, list[Site]]:
        """By the last part of what is called."""
        found: dict[str, list[Site]] = {}
        for site in self.sites:
            func = site.node.func
            called = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
            found.setdefault(called, []).append(site)
        return found

    def source(self, node: ast.AST) -> str:
        """As it stands in the file, in one line."""
        place = self.place(node)
        if not place.line:
            return ""
        if place.line == place.end_line:
            return self.lines[place.line - 1][place.column - 1 : place.end_column - 1]
        first, *middle = self.lines[place.line - 1 : place.end_line]
        last = middle.pop()
        return " ".join(" ".join([first[place.column - 1 :], *middle, last[: place.end_column - 1]]).split())

    def source_at(self, place: Place) -> str:
        """Of a place in one line."""
        text = self.lines[place.line - 1] if 0 < place.line <= len(self.lines) else ""
        return text[place.column - 1 : place.end_column - 1] if place.line == place.end_line else text.strip()

    def place(self, node: ast.AST, key: str = "") -> Place:
        line = getattr(node, "lineno", 0)
        if not line:
            return Place(self.file, key=key)
        end = getattr(node, "end_lineno", None) or line
        return Place(
            self.file,
            line,
            self._column(line, getattr(node, "col_offset", 0)),
            end,
            self._column(end, getattr(node, "end_col_offset", None) or 0),
            key,
        )

    def _column(self, line: int, offset: int) -> int:
        """Python's spans count bytes of UTF-8."""
        text = self.lines[line - 1]
        return offset + 1 if text.isascii() else len(text.encode()[:offset].decode(errors="replace")) + 1

    def dotted(self, node: ast.AST) -> str:
        """`torch.optim.AdamW` for whatever the file calls it; empty for what does not begin with an imported name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        first = self.imports.get(node.id) or self._alias(node.id)
        return ".".join([first, *reversed(parts)]) if first else ""

    def _alias(self, name: str) -> str:
        """Of the module's own `F = torch.nn.functional`."""
        bound = self.top.bindings.get(name, ())
        if len(bound) != 1 or bound[0].kind != "value" or bound[0].path:
            return ""
        value = bound[0].value
        parts: list[str] = []
        while isinstance(value, ast.Attribute):
            parts.append(value.attr)
            value = value.value
        first = self.imports.get(value.id) if isinstance(value, ast.Name) else None
        return ".".join([first, *reversed(parts)]) if first else ""

    def called(self, site: Site) -> str:
        """The name of what is called, as `Call.name` has it."""
        func = site.node.func
        name = self.dotted(func)
        if name:
            return name
        if isinstance(func, ast.Name):
            return func.id
        if not isinstance(func, ast.Attribute):
            return ""
        made = self.made_by(func.value, site.scope)
        return f"{made}.{func.attr}"

    def made_by(self, node: ast.expr, scope: Scope) -> str:
        """The class of what a name holds, where one constructor call gives it its only value; else empty."""
        if isinstance(node, ast.Call):
            return _class_name(self.dotted(node.func))
        if not isinstance(node, ast.Name):
            return ""
        bound = self.bound(node.id, scope)
        values = [binding.value for binding in bound if isinstance(binding.value, ast.Call) and not binding.path]
        if len(values) != 1:
            return ""
        assert isinstance(values[0], ast.Call)
        return _class_name(self.dotted(values[0].func))

    def bound(self, name: str, scope: Scope | None) -> Sequence[Binding]:
        """In the innermost scope that binds it."""
        holder = self.holder(name, scope)
        return holder.bindings[name] if holder is not None else ()

    def holder(self, name: str, scope: Scope | None) -> Scope | None:
        """The innermost scope that binds a name as it is seen from `scope`. None: nobody does, or it is a parameter that
        keeps what a caller gave.
        """
        inner = scope
        while inner is not None:
            if name in inner.bindings and (inner is scope or not inner.is_class):
                return inner
            if isinstance(inner.node, FUNCTIONS) and name in parameters(inner.node):
                return None
            inner = inner.parent
        return None

    def functions(self, name: str) -> Iterator[Scope]:
        """Of the file, by their bare name: module-level ones and methods."""
        for node, scope in self.scopes.items():
            if isinstance(node, FUNCTIONS) and node.name == name:
                yield scope


def _class_name(dotted: str) -> str:
    last = dotted.rpartition(".")[2]
    return dotted if last[:1].isupper() else ""


def parameters(node: Function) -> set[str]:
    """Their names, those of `*args` and `**kwargs` too."""
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {argument.arg for argument in every if argument is not None}


class _Walk:
    """One pass over a file. Recursion follows the tree, whose height is limited before."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def body(
        self,
        statements: Sequence[ast.stmt],
        scope: Scope,
        branches: tuple[Branch, ...],
        around: tuple[Around, ...],
        loops: tuple[ast.AST, ...],
    ) -> None:
        for statement in statements:
            self.statement(statement, scope, branches, around, loops)
            if loops and isinstance(statement, ast.If) and _leaves(statement.body) and not statement.orelse:
                branches = (*branches, (statement, "rest"))

    def statement(
        self,
        node: ast.stmt,
        scope: Scope,
        branches: tuple[Branch, ...],
        around: tuple[Around, ...],
        loops: tuple[ast.AST, ...],
    ) -> None:
        module = self.module
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            self._definition(node, scope, branches, around, loops)
        elif isinstance(node, ast.If):
            self.expressions([node.test], scope, branches, around, loops)
            test = module.source(node.test)
            main = "__name__" in test and "__main__" in test
            inner = Around("main" if main else "if", test)
            held = branches if main else (*branches, (node, "body"))
            self.body(node.body, scope, held, (*around, inner), loops)
            if node.orelse:
                self.body(
                    node.orelse, scope, (*branches, (node, "else")), (*around, Around("if", f"not ({test})")), loops
                )
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self.expressions([node.iter], scope, branches, around, loops)
            for target, path in _targets(node.target):
                self._bind(target, scope, Binding("loop", _after(node.iter), branches, node.iter, path, node=node))
            inner = Around("for", f"{module.source(node.target)} in {module.source(node.iter)}")
            self.body(node.body, scope, (*branches, (node, "loop")), (*around, inner), (*loops, node))
            self.body(node.orelse, scope, branches, around, loops)
        elif isinstance(node, ast.While):
            inner = Around("while", module.source(node.test))
            self.expressions([node.test], scope, branches, (*around, inner), (*loops, node))
            self.body(node.body, scope, (*branches, (node, "loop")), (*around, inner), (*loops, node))
            self.body(node.orelse, scope, branches, around, loops)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                self.expressions([item.context_expr], scope, branches, around, loops)
                for target, path in _targets(item.optional_vars) if item.optional_vars else ():
                    self._bind(
                        target,
                        scope,
                        Binding("with", _after(item.context_expr), branches, item.context_expr, path, node=node),
                    )
            named = ", ".join(module.source(item.context_expr) for item in node.items)
            self.body(node.body, scope, branches, (*around, Around("with", named)), loops)
        elif isinstance(node, (ast.Try, ast.TryStar)):
            self.body(node.body, scope, branches, around, loops)
            for handler in node.handlers:
                self.body(handler.body, scope, (*branches, (node, "except")), around, loops)
            self.body(node.orelse, scope, branches, around, loops)
            self.body(node.finalbody, scope, branches, around, loops)
        elif isinstance(node, ast.Match):
            self.expressions([node.subject], scope, branches, around, loops)
            for case in node.cases:
                self.body(case.body, scope, (*branches, (case, "body")), around, loops)
        else:
            self._simple(node, scope, branches, around, loops)

    def _definition(
        self,
        node: Function | ast.ClassDef,
        scope: Scope,
        branches: tuple[Branch, ...],
        around: tuple[Around, ...],
        loops: tuple[ast.AST, ...],
    ) -> None:
        of_class = isinstance(node, ast.ClassDef)
        scope.bindings.setdefault(node.name, []).append(
            Binding("class" if of_class else "function", _at(node), branches, node=node)
        )
        outside: list[ast.expr] = [*node.decorator_list]
        if isinstance(node, ast.ClassDef):
            outside += [*node.bases, *(keyword.value for keyword in node.keywords)]
        else:
            outside += [*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None)]
        self.expressions(outside, scope, branches, around, loops)
        inner = Scope(node, scope, branches)
        self.module.scopes[node] = inner
        self.body(node.body, inner, (), (*around, Around("class" if of_class else "function", node.name)), ())

    def _simple(
        self,
        node: ast.stmt,
        scope: Scope,
        branches: tuple[Branch, ...],
        around: tuple[Around, ...],
        loops: tuple[ast.AST, ...],
    ) -> None:
        result = ""
        if isinstance(node, ast.Import):
            for name in node.names:
                local = name.asname or name.name.partition(".")[0]
                self.module.imports.setdefault(local, name.name if name.asname else local)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            for name in node.names:
                joint = "" if not origin or origin.endswith(".") else "."
                self.module.imports.setdefault(name.asname or name.name, f"{origin}{joint}{name.name}")
        elif isinstance(node, ast.Assign):
            for whole in node.targets:
                for target, path in _targets(whole):
                    self._bind(target, scope, Binding("value", _after(node), branches, node.value, path, node=node))
            result = self.module.source(node.targets[0]) if isinstance(node.value, ast.Call) else ""
        elif isinstance(node, ast.AnnAssign):
            kind = "value" if node.value else "unknown"
            self._bind(node.target, scope, Binding(kind, _after(node), branches, node.value, node=node, annotated=True))
            result = self.module.source(node.target)
        elif isinstance(node, ast.AugAssign):
            self._bind(
                node.target,
                scope,
                Binding("augment", _after(node), branches, node.value, operator=node.op, node=node),
            )
        elif isinstance(node, ast.Return):
            scope.returns.append((node, branches))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._changed_by(node.value, scope, branches)
        elif isinstance(node, ast.Delete):
            for part in node.targets:
                if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name):
                    gone = Binding("gone", _after(node), branches, node=node, key=part.slice)
                    scope.changes.setdefault(part.value.id, []).append(gone)
        self.expressions(
            [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)],
            scope,
            branches,
            around,
            loops,
            result,
        )

    def _changed_by(self, call: ast.Call, scope: Scope, branches: tuple[Branch, ...]) -> None:
        """`config.update(lr=1e-4)`, `setattr(args, "lr", 1e-4)`, `os.environ.setdefault("X", "1")`."""
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in ("update", "setdefault"):
            owner = _root(func.value)
            if owner and isinstance(func.value, ast.Name):
                change = Binding("update", _after(call), branches, call, node=call)
                if func.attr == "setdefault" and len(call.args) == 2:
                    key, value = call.args
                    change = Binding("default", _after(call), branches, value, node=call, key=key)
                scope.changes.setdefault(owner, []).append(change)
        elif isinstance(func, ast.Name) and func.id == "setattr" and len(call.args) == 3:
            owner = _root(call.args[0])
            if owner:
                change = Binding("item", _after(call), branches, call.args[2], node=call, key=call.args[1])
                scope.changes.setdefault(owner, []).append(change)

    def _bind(self, target: ast.expr, scope: Scope, binding: Binding) -> None:
        if isinstance(target, ast.Name):
            scope.bindings.setdefault(target.id, []).append(binding)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            owner = scope
            binding.scope = scope
            if target.value.id in ("self", "cls") and scope.parent is not None and scope.parent.is_class:
                owner = scope.parent  # what a method gives `self` belongs to the class
            binding.kind = "attribute" if binding.kind == "value" else "unknown"
            binding.key = target.attr
            owner.changes.setdefault(target.value.id, []).append(binding)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            binding.kind = "item" if binding.kind == "value" else "unknown"
            binding.key = target.slice
            scope.changes.setdefault(target.value.id, []).append(binding)
        elif isinstance(target, (ast.Subscript, ast.Attribute)):
            owner_name = _root(target)
            if owner_name:
                binding.kind, binding.key = "nested", target
                scope.changes.setdefault(owner_name, []).append(binding)

    def expressions(
        self,
        nodes: Sequence[ast.expr],
        scope: Scope,
        branches: tuple[Branch, ...],
        around: tuple[Around, ...],
        loops: tuple[ast.AST, ...],
        result: str = "",
    ) -> None:
        todo: list[tuple[ast.AST, tuple[Branch, ...]]] = [(node, branches) for node in reversed(nodes)]
        whole = set(nodes)
        while todo:
            node, within = todo.pop()
            if isinstance(node, ast.Call):
                self.module.sites.append(Site(node, scope, within, around, loops, result if node in whole else ""))
                if (made := _started_by(node)) is not None:
                    site = Site(made, scope, branches, around, loops, "")
                    self.module.started.setdefault(_root(made.func), []).append(site)
                func = node.func
                if (
                    isinstance(func, ast.Attribute)
                    and func.attr == "pop"
                    and isinstance(func.value, ast.Name)
                    and node.args
                ):
                    gone = Binding("gone", _after(node), branches, node=node, key=node.args[0])
                    scope.changes.setdefault(func.value.id, []).append(gone)
            elif isinstance(node, ast.NamedExpr) and isinstance(node.target, ast.Name):
                named = Binding("value", _after(node), branches, node.value, node=node)
                scope.bindings.setdefault(node.target.id, []).append(named)
            elif isinstance(node, ast.Lambda):
                self.module.scopes.setdefault(node, Scope(node, scope))
            todo.extend(reversed(list(_inside(node, within))))


def _inside(node: ast.AST, branches: tuple[Branch, ...]) -> Iterator[tuple[ast.AST, tuple[Branch, ...]]]:
    """What stands in an expression, each with the branches that lead to it: a part of `a if test else b` and what follows
    an `and` or `or` is not always asked."""
    for child in ast.iter_child_nodes(node):
        perhaps = (isinstance(node, ast.IfExp) and child is not node.test) or (
            isinstance(node, ast.BoolOp) and child is not node.values[0]
        )
        if not isinstance(child, ast.expr_context):
            part = "else" if isinstance(node, ast.IfExp) and child is node.orelse else "body"
            yield child, (*branches, (node, part)) if perhaps else branches


def _started_by(call: ast.Call) -> ast.Call | None:
    """The call that another process makes of a function that it is given; None: no such thing."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    if name in ("spawn", "notebook_launcher", "debug_launcher", "start_processes"):
        function = call.args[0] if call.args else given.get("fn") or given.get("function")
        args = call.args[1] if len(call.args) > 1 else given.get("args")
    elif name == "Process":
        function, args = given.get("target"), given.get("args")
    else:
        return _bound_by(call, name, given)
    if not isinstance(function, ast.Name) or not isinstance(args, ast.Tuple | ast.List):
        return None
    ranked = [ast.Name("rank of a process", ast.Load())] if name in ("spawn", "start_processes") else []
    inner = given.get("kwargs")
    more = [ast.keyword(None, inner)] if name == "Process" and inner is not None else []
    made = ast.Call(function, [*ranked, *args.elts], more)
    for node in (made, *ranked):
        ast.copy_location(node, call)
    return made


def _bound_by(call: ast.Call, name: str, given: dict[str, ast.expr]) -> ast.Call | None:
    """The call that `rows.map(encode, fn_kwargs={"max_length": 512})` and `partial(encode, max_length=512)` make of it."""
    function = call.args[0] if call.args else given.get("function")
    words = given.get("fn_kwargs")
    if not isinstance(function, ast.Name):
        return None
    if name == "partial":
        args, keywords = call.args[1:], call.keywords
    elif name in ("map", "filter") and isinstance(words, ast.Dict):
        row = ast.copy_location(ast.Name("a row", ast.Load()), call)
        args = [row]
        keywords = [ast.keyword(None, words)]
    else:
        return None
    return ast.copy_location(ast.Call(function, list(args), list(keywords)), call)


def _targets(target: ast.expr, path: tuple[int, ...] = ()) -> Iterator[tuple[ast.expr, tuple[int, ...]]]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for number, element in enumerate(target.elts):
            yield from _targets(element, (*path, number))
    elif isinstance(target, ast.Starred):
        yield target.value, (*path, -1)
    else:
        yield target, path


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _at(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _after(node: ast.AST) -> tuple[int, int]:
    """Where a name has its new value: behind the whole statement, whose own right side still sees the old one."""
    return getattr(node, "end_lineno", None) or 0, getattr(node, "end_col_offset", None) or 0


def _leaves(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (ast.Continue, ast.Break))
