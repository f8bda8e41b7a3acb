"""Two parts of one source of rows that overlap: one is trained on, the other evaluates."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.drawn_from import OF_TESTS, drawn_from, is_a_look, kept_for_training, trains_on
from dynotune.audit.shapes.held_out_rows_kept import held_out_rows_kept
from dynotune.audit.shapes.part_beside_its_whole import parts_beside_wholes
from dynotune.audit.shapes.repeated_before_divided import repeated_before_divided

_SLICE = re.compile(r"(\w+)(?:\[(-?\d+%?)?:(-?\d+%?)?\])?")
_LOADS = re.compile(r"(?:^|\.)load_dataset$")


def evaluated_on_trained(script: Script, project: Project) -> Iterator[Said]:
    beside = next(parts_beside_wholes(script, project), None)
    if beside is not None:
        yield _finding(
            f"`{beside.part[:60]}` evaluates, and all of `{beside.whole}` is trained on", beside.place, beside.trained
        )
        return
    if not re.search(r"val|eval|test|dev|held", script.source):
        return
    kept = next(held_out_rows_kept(script, project), None)
    if kept is not None:
        yield _finding(kept.why, kept.place, kept.trained)
        return
    scopes = [script.tree, *(node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef))]
    for scope in scopes:
        given = [
            (node.targets[0].id, node.value)
            for node in own_nodes(scope)
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        ]
        found = next(_found(script, project, given, scope), None)
        if found is not None:
            yield found
            return


def _found(
    script: Script, project: Project, given: Sequence[tuple[str, ast.expr]], scope: ast.AST
) -> Iterator[Finding]:
    yield from _loaded(script, given)
    yield from _drawn(script, given, scope)
    yield from _repeated(script, given, scope)
    for made, divides in repeated_before_divided(given, scope, script, project):
        yield _finding(
            f"`{ast.unparse(made)[:60]}` repeats rows, or alters copies of them, before they are divided, so copies of one"
            " row stand in both parts",
            place_of(script, made),
            place_of(script, divides),
        )


def _loaded(script: Script, given: Sequence[tuple[str, ast.expr]]) -> Iterator[Finding]:
    """`split="train"` and `split="train[:5%]"` of the same source."""
    loads = [(name, call, *_source(call)) for name, value in given if (call := _load(value)) is not None]
    for name, call, source, split in loads:
        if not OF_TESTS.search(name) or not source:
            continue
        for other, first, theirs, whole in loads:
            if other != name and not OF_TESTS.search(other) and source == theirs and _overlap(whole, split):
                yield _finding(
                    f"`{name}` is loaded from `{split}` and `{other}` from `{whole}` of the same data",
                    place_of(script, call),
                    place_of(script, first),
                )


def _load(node: ast.expr) -> ast.Call | None:
    """The call at the head of a chain: `load_dataset(...).map(...)`, unless it takes rows out."""
    while isinstance(node, ast.Call):
        if _LOADS.search(ast.unparse(node.func)):
            return node
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in (
            "map",
            "shuffle",
            "rename_column",
            "with_format",
        ):
            return None
        node = node.func.value
    return None


def _source(call: ast.Call) -> tuple[str, str]:
    """What it loads, apart from the split, and the split; empty where that is not written out."""
    split = next((one.value for one in call.keywords if one.arg == "split"), None)
    if not isinstance(split, ast.Constant) or not isinstance(split.value, str):
        return "", ""
    rest = [ast.unparse(one) for one in call.args]
    return ", ".join([*rest, *sorted(ast.unparse(one) for one in call.keywords if one.arg != "split")]), split.value


def _overlap(trained: str, tested: str) -> bool:
    """Whether two slices of one split share rows, both in per cent or both in rows from the front."""
    one, two = _SLICE.fullmatch(trained), _SLICE.fullmatch(tested)
    if one is None or two is None or one[1] != two[1]:
        return False
    if one[2] is None and one[3] is None:
        return True
    ends = [part for part in (*one.groups()[1:], *two.groups()[1:]) if part is not None]
    if any(part.startswith("-") for part in ends) or len({part.endswith("%") for part in ends}) != 1:
        return False
    a, b, c, d = (
        float(part.rstrip("%")) if part is not None else other
        for part, other in zip((*one.groups()[1:], *two.groups()[1:]), (0.0, 1e12, 0.0, 1e12), strict=True)
    )
    return max(a, c) < min(b, d)


def _drawn(script: Script, given: Sequence[tuple[str, ast.expr]], scope: ast.AST) -> Iterator[Finding]:
    """`val = random.sample(rows, 100)` or `rows[:100]`, and all of `rows` is trained on."""
    for name, value in given:
        whole = drawn_from(value)
        if not OF_TESTS.search(name) or not whole or OF_TESTS.search(whole) or is_a_look(value):
            continue
        if any(one in (whole, name) and made.lineno > value.lineno for one, made in given):
            continue  # what is left may have the same name
        text = ast.unparse(scope)
        if re.search(rf"\bif \w+ not in {name}\b|\b{whole}\.remove\(|\bdel {whole}\[|\b{whole}\.pop\(", text):
            continue
        trained = [
            node
            for node in own_nodes(scope)
            if (
                isinstance(node, ast.Assign)
                and ast.unparse(node.value) == whole
                and "train" in ast.unparse(node.targets[0])
            )
            or (isinstance(node, ast.Call) and trains_on(node, whole))
            or kept_for_training(node, whole)
        ]
        if trained:
            yield _finding(
                f"`{name}` is `{ast.unparse(value)[:60]}`, and all of `{whole}` is trained on",
                place_of(script, value),
                place_of(script, trained[0]),
            )


_TIMES = re.compile(r"(\w+) \* [2-9]\d*|\[?(\w+)(?:, | \+ )\2(?:(?:, | \+ )\2)*\]?")


def _repeated(script: Script, given: Sequence[tuple[str, ast.expr]], scope: ast.AST) -> Iterator[Finding]:
    """Rows that are repeated and divided afterwards: `concatenate_datasets([raw, raw]).train_test_split(...)`."""
    text = ast.unparse(scope)
    for node in own_nodes(scope):
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or node.func.attr != "train_test_split"
        ):
            continue
        made = node.func.value
        if isinstance(made, ast.Name):
            values = [value for name, value in given if name == made.id]
            made = values[0] if len(values) == 1 else made
        while (
            isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in ("shuffle", "map")
        ):
            made = made.func.value
        if not isinstance(made, ast.Call) or not made.args or "concatenate_datasets" not in ast.unparse(made.func):
            continue
        parts = made.args[0]
        again = _TIMES.fullmatch(ast.unparse(parts).replace("[", "").replace("]", ""))
        if again is not None and "test" in text:
            yield _finding(
                f"`{ast.unparse(made)[:60]}` repeats every row before the rows are divided, so most rows of the test part"
                " stand in the training part too",
                place_of(script, made),
                place_of(script, node),
            )


def _finding(why: str, place: Place, other: Place) -> Finding:
    return Finding(
        f"{why}: the evaluation says how well rows are remembered, and would choose a checkpoint by that.",
        place=place,
        evidence=Evidence(Level.TEXT, {"overlap": True}),
        stake=Stake(AtStake.FIGURES),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Divide the rows once, before anything is repeated, and train on what is left.",
            effort=Effort.MINUTES,
        ),
        also=(other,),
    )


_PAIRS = (
    ("train_file", "validation_file"),
    ("train_file", "eval_file"),
    ("train_path", "eval_path"),
    ("train_path", "val_path"),
    ("train_data", "val_data"),
    ("train_data", "eval_data"),
    ("train_data_path", "eval_data_path"),
    ("train_data_path", "val_data_path"),
    ("dataset_train_split", "dataset_test_split"),
    ("dataset", "eval_dataset"),
)


def the_same_file_for_both(project: Project) -> Iterator[Said]:
    """A configuration or a command that names one file for training and for evaluation; Axolotl's lists too."""
    for config in project.configs:
        values, places = config.values, config.places
        parts = [("", values), *((f"{name}.", one) for name, one in values.items() if isinstance(one, Mapping))]
        for head, part in parts:
            for train, test in _of_one_source(part):
                if f"{head}{test}" in places:
                    first = places.get(f"{head}{train}", Place(config.file))
                    yield _same(f"`{train}` and `{test}` are both `{part[train]}`", places[f"{head}{test}"], first)
        rows, tests = values.get("datasets"), values.get("test_datasets")
        if isinstance(rows, list | tuple) and isinstance(tests, list | tuple):
            trained = {_named(one) for one in rows} - {None}
            again = next((one for one in tests if _named(one) in trained), None)
            if again is not None and "test_datasets" in places:
                yield _same(
                    f"`test_datasets` names `{again['path']}`, which is trained on", places["test_datasets"],
                    places.get("datasets", Place(config.file)),
                )  # fmt: skip
    for launch in project.launches:
        for train, test in _of_one_source({name: flag.value for name, flag in launch.flags.items()}):
            flags = launch.flags
            yield _same(
                f"`--{train}` and `--{test}` are both `{flags[test].value}`", flags[test].place, flags[train].place
            )


def the_same_split_for_both(project: Project) -> Iterator[Said]:
    """A job that gets its two splits from two places: the configuration's, a flag's, the trainer's own."""
    for job in project.jobs:
        test, train = job.setting("dataset_test_split"), job.get("dataset_train_split")
        named = job.get("dataset_name"), job.get("eval_dataset_name")
        if test is None or not job.is_given("dataset_test_split") or not isinstance(train, str) or test.value != train:
            continue
        if job.get("eval_strategy") in (None, "no") or (named[1] is not None and named[0] != named[1]):
            continue
        place = job.place("dataset_test_split")
        if place.file != job.place("dataset_train_split").file:  # else the file itself has said so
            yield _same(
                f"`{job.called('dataset_train_split')}` and `{job.called('dataset_test_split')}` are both `{train}`",
                place,
                job.place("dataset_train_split"),
            )


def _of_one_source(values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Pairs of keys that name the same rows. Where splits are named beside them, only these tell."""
    splits = any("split" in str(name) for name in values)
    for train, test in _PAIRS:
        one = values.get(train)
        if isinstance(one, str) and one and one == values.get(test) and (not splits or train.endswith("split")):
            yield train, test


def _named(row: object) -> tuple[str, str, str] | None:
    """Source, split and files of one of Axolotl's data sets."""
    if not isinstance(row, Mapping) or not isinstance(row.get("path"), str):
        return None
    return row["path"], str(row.get("split") or "train"), str(row.get("data_files") or row.get("name") or "")


def _same(why: str, place: Place, other: Place) -> Finding:
    return _finding(why, place, other)
