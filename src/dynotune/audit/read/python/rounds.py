"""Comprehensions and loops that fill a dictionary, gone through one round at a time where what they go over was read."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dynotune.audit.read.python.module import Binding, Branch, Scope
from dynotune.audit.read.python.operators import NoValueError
from dynotune.audit.read.python.value import HOLE, LEFT_OUT, Made, Names, Value, left_out, unknown

if TYPE_CHECKING:
    from dynotune.audit.read.python.evaluator import Evaluator, Frame

MOST_ROUNDS = 400
MOST_LOOPS = 10
"""That change one object and are gone through: each asks what the ones before it made."""

EXTRA = 4_000
"""Expressions for all rounds of one question, beside those that the question has anyway."""

IN_ALL = 200_000
"""Of those, for all questions about a script."""

_RUNS = "it is computed when the script runs"
_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
Turn = tuple["Round", bool | None, bool]
"""The names of one round; whether its conditions hold (None: perhaps); whether one fails for what a class takes."""


class Round(dict[str, Value]):
    """What the names of a comprehension or a loop are in one round, over the frame around it."""

    def __init__(self, names: Mapping[str, Value], outer: "Frame", span: tuple[int, int] = (0, 0)) -> None:
        super().__init__({**outer, **names})
        self.names: frozenset[str] = frozenset(names) | (outer.names if isinstance(outer, Round) else frozenset())
        self.outer: Frame = outer.outer if isinstance(outer, Round) else outer
        self.span = span
        """Lines of the loop, whose body may make names of these."""


class Rounds:
    def __init__(self, evaluator: "Evaluator") -> None:
        self.of = evaluator

    def comprehension(self, node: _Comprehension, scope: Scope, frame: "Frame") -> Value:
        """Raises `NoValueError` where what it goes over is not known."""
        over = self.of.value(node.generators[0].iter, scope, frame)
        if isinstance(over.value, Names):
            return self._of_names(node, over, scope, frame)
        with _Budget(self.of):
            turns = self._through(node.generators, scope, frame)
            if isinstance(node, ast.DictComp):
                return self._dictionary(node, turns, scope)
            found: list[Value] = []
            for turn, holds, _ in turns:
                if holds is not False:
                    found.append(self.of.value(node.elt, scope, turn))
            return Value(found)

    def _dictionary(self, node: ast.DictComp, turns: Iterator[Turn], scope: Scope) -> Value:
        found: dict[Any, Value] = {}
        place = self.of.module.place(node)
        for turn, holds, by_class in turns:
            key = self.of.value(node.key, scope, turn)
            if not isinstance(key.value, (str, int, float, bool)):
                found[HOLE] = unknown("its keys are known only when the script runs")
                continue
            value = self.of.value(node.value, scope, turn)
            value = Value(value.value, value.via, value.others, value.place or key.place or place)
            put(found, key.value, value, holds, by_class, place)
        return Value(found)

    def _through(self, generators: Sequence[ast.comprehension], scope: Scope, frame: "Frame") -> Iterator[Turn]:
        if not generators:
            return
        first, *rest = generators
        for names in self._each(first.target, self.of.value(first.iter, scope, frame)):
            turn = Round(names, frame)
            holds: bool | None = True
            by_class = False
            for test in first.ifs:
                verdict, missing = self._test(test, scope, turn)
                by_class = by_class or missing
                holds = False if verdict is False or holds is False else None if verdict is None else holds
            if rest and holds is not False:
                for inner, also, missing in self._through(rest, scope, turn):
                    yield inner, also if also is not True else holds, missing
            elif not rest:
                yield turn, holds, by_class

    def _test(self, test: ast.expr, scope: Scope, turn: Round) -> tuple[bool | None, bool]:
        """Its verdict, and whether it asked for what a class takes and was told no."""
        if any(isinstance(value.value, str) and value.value == HOLE for value in turn.values()):
            return True, False
        before, self.of.missing[0] = self.of.missing[0], False
        verdict = self.of.value(test, scope, turn)
        missing, self.of.missing[0] = self.of.missing[0], before
        known = verdict.is_known and not verdict.others and not isinstance(verdict.value, Made)
        return bool(verdict.value) if known else None, missing

    def _each(self, target: ast.expr, over: Value) -> Iterator[Mapping[str, Value]]:
        held = over.value
        if isinstance(held, dict):
            elements = [Value(key, (), (), value.place) for key, value in held.items() if not left_out(key)]
        elif isinstance(held, list):
            elements = [one if isinstance(one, Value) else Value(one) for one in held]
        else:
            raise NoValueError("what it goes through is known only when the script runs")
        if len(elements) > MOST_ROUNDS:
            raise NoValueError(f"it has more than {MOST_ROUNDS} items")
        for element in elements:
            yield dict(_bound(target, element))

    def _of_names(self, node: _Comprehension, over: Value, scope: Scope, frame: "Frame") -> Value:
        """Of a comprehension over what a class takes: the same names, or those items of a mapping."""
        target, one = node.generators[0].target, node.key if isinstance(node, ast.DictComp) else node.elt
        if isinstance(target, ast.Tuple) and target.elts:
            target = target.elts[0]
        named = one.value if isinstance(one, ast.Attribute) and one.attr == "name" else one
        same = isinstance(target, ast.Name) and isinstance(named, ast.Name) and target.id == named.id
        if not same or len(node.generators) != 1:
            return unknown(_RUNS)
        if not isinstance(node, ast.DictComp):
            return over
        asked, held = _asked(node.value, one)
        if asked is None:
            return over  # names with what else is known of them
        source = self.of.value(asked, scope, frame).value
        items = source.attributes if isinstance(source, Made) and not source.open else source
        if not isinstance(items, dict) or (held and items.get(HOLE) is not None):
            raise NoValueError("what its items come from is known only when the script runs")
        found: dict[Any, Value] = {}
        place = self.of.module.place(node)
        for key, value in items.items():
            taken = self.of.takes(over.value, key) if isinstance(key, str) else None
            put(found, key, value, taken, taken is False, place)
        return Value(found)

    # Loops

    def changed_in_one(self, change: Binding) -> bool:
        """Whether a change is of an item whose key a loop says."""
        if change.kind not in ("item", "default", "gone") or not isinstance(change.key, ast.expr):
            return False
        return not isinstance(change.key, ast.Constant) and any(_is_for(branch) for branch in change.branches)

    def changes(
        self, change: Binding, scope: Scope, frame: "Frame", applies: Callable[[Binding], bool | None]
    ) -> Iterator[tuple[Any, Value, bool | None, bool]]:
        """Key, value, whether it is set (None: perhaps), and whether it is not for what a class takes."""
        first = next(number for number, branch in enumerate(change.branches) if _is_for(branch))
        before = applies(replace(change, branches=change.branches[:first]))
        assert isinstance(change.key, ast.expr)
        if before is False:
            return
        place = self.of.module.place(change.node) if change.node is not None else None
        try:
            with _Budget(self.of):
                for turn, holds, by_class in self._turns(change.branches[first:], scope, frame):
                    key = self.of.value(change.key, scope, turn)
                    value = self.of.value(change.value, scope, turn) if change.value is not None else Value(None)
                    value = Value(value.value, value.via, value.others, value.place or key.place or place)
                    verdict = holds if before is True else holds and None
                    yield key.value if key.is_known else HOLE, value, verdict, by_class
        except NoValueError as error:
            if change.kind != "gone":
                yield HOLE, Value(unknown(str(error)).value, (), (), place), True, False

    def _turns(self, branches: Sequence[Branch], scope: Scope, frame: "Frame") -> Iterator[Turn]:
        if not branches:
            assert isinstance(frame, Round)
            yield frame, True, False
            return
        (node, part), *rest = branches
        if isinstance(node, (ast.For, ast.AsyncFor)) and part == "loop":
            over = self.of.value(node.iter, scope, frame)
            if isinstance(over.value, Names):
                raise NoValueError("what it goes through is known only when the script runs")
            if not _is_the_same_each_round(node):
                raise NoValueError("its loop ends early, or gives its own names other values")
            for names in self._each(node.target, over):
                turn = Round(names, frame, (node.lineno, node.end_lineno or node.lineno))
                yield from self._turns(rest, scope, turn)
            return
        verdict: bool | None = None
        missing = False
        if isinstance(node, ast.If) and isinstance(frame, Round):
            verdict, missing = self._test(node.test, scope, frame)
            if (
                verdict is not None
                and part != "body"
                and HOLE not in {one.value for one in frame.values() if _plain(one)}
            ):
                verdict = not verdict
        for turn, holds, by_class in self._turns(rest, scope, frame):
            joint = False if verdict is False or holds is False else None if None in (verdict, holds) else True
            yield turn, joint, by_class or missing


def _plain(value: Value) -> bool:
    return isinstance(value.value, str)


@lru_cache(maxsize=256)
def _is_the_same_each_round(loop: ast.For | ast.AsyncFor) -> bool:
    """Whether no round is left early for all (`break`), tried and given up, or has its names changed on the way."""
    own = {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
    for statement in loop.body:
        for one in ast.walk(statement):
            if isinstance(one, (ast.Break, ast.Try, ast.Return)):
                return False
            if isinstance(one, ast.Name) and isinstance(one.ctx, (ast.Store, ast.Del)) and one.id in own:
                return False
    return True


def _is_for(branch: Branch) -> bool:
    return isinstance(branch[0], (ast.For, ast.AsyncFor)) and branch[1] == "loop"


def _bound(target: ast.expr, element: Value) -> Iterator[tuple[str, Value]]:
    if isinstance(target, ast.Name):
        yield target.id, element
    elif isinstance(target, (ast.Tuple, ast.List)):
        for number, part in enumerate(target.elts):
            held = element.value
            inner = held[number] if isinstance(held, list) and number < len(held) else unknown(_RUNS)
            yield from _bound(part, inner if isinstance(inner, Value) else Value(inner))


def _asked(node: ast.expr, key: ast.expr) -> tuple[ast.expr | None, bool]:
    """The mapping that `raw[k]`, `raw.get(k)` and `getattr(raw, k)` ask, and whether it must have the key."""
    same = ast.dump(key)
    if isinstance(node, ast.Subscript) and ast.dump(node.slice) == same:
        return node.value, True
    if isinstance(node, ast.Call) and node.args:
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in ("get", "pop") and ast.dump(node.args[0]) == same:
            return func.value, False
        if (
            isinstance(func, ast.Name)
            and func.id == "getattr"
            and len(node.args) > 1
            and ast.dump(node.args[1]) == same
        ):
            return node.args[0], False
    return None, False


def put(
    into: dict[Any, Value], key: Any, value: Value, holds: bool | None, by_class: bool, place: Any, old: bool = False
) -> None:
    """Set an item, perhaps, or keep that it was left out for what a class takes. old: it may have had a value before."""
    if left_out(key):
        into.setdefault(key, value)
    elif key == HOLE:
        into[key] = value if not value.is_known else unknown("its keys are known only when the script runs")
    elif holds is True:
        into[key] = value
        into.pop(f"{LEFT_OUT}{key}", None)
    elif holds is None:
        extra = (value.value,) if value.is_known and not isinstance(value.value, Made) else ()
        before = into.get(key) if old else None
        if before is not None:
            into[key] = Value(before.value, before.via, (*before.others, *extra), before.place)
        else:
            into[key] = Value(unknown("it depends on a condition").value, value.via, extra, value.place)
    elif by_class and isinstance(key, str) and key not in into:
        into[f"{LEFT_OUT}{key}"] = Value(value.value, (replace(place, key=LEFT_OUT), *value.via), (), value.place)


class _Budget:
    """More expressions for a while: going through a file's keys is not a trail that is too long."""

    def __init__(self, evaluator: "Evaluator") -> None:
        self.of = evaluator

    def __enter__(self) -> None:
        self.before = self.of.budget[0]
        self.outermost = not self.of.rounds_left[1]
        if self.outermost:
            self.of.rounds_left[1] = 1
            self.of.budget[0] += self.of.rounds_left[0]

    def __exit__(self, *error: object) -> None:
        if self.outermost:
            self.of.rounds_left[1] = 0
            left = self.of.budget[0] - self.before
            self.of.rounds_in_all[0] -= self.of.rounds_left[0] - max(left, 0)
            self.of.rounds_left[0] = max(left, 0)
            self.of.budget[0] = min(self.of.budget[0], self.before - 10)
